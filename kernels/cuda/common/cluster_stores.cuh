// Stores into the shared memory of other blocks of a cluster (sm_90), where a barrier counts the
// bytes that have come.
//
//   // one thread, then a barrier of the block:
//   barrier_init(&there, 1), barrier_init_done(), barrier_expect(&there, 32);
//   begin_in_cluster();                      // all threads
//   wait_after_arrival();                    // all blocks run, their barriers are made
//   store_of_rank(&values[own_rank], v, rank, &there);
//   barrier_wait(&there, 0);
//
// The sender does not wait. begin_in_cluster() does not wait for a block that has ended.
#pragma once

#include <cstdint>

#include "kernels/cuda/common/cluster_copy.cuh"

namespace ktx::kernels {

#if __CUDA_ARCH__ >= 900
// The first half of a barrier of the cluster behind which only barriers made before are seen.
__device__ __forceinline__ void begin_in_cluster() {
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}
// Where block `rank` of the cluster has what is at this address here.
__device__ __forceinline__ uint32_t address_of_rank(const void* p, int rank) {
  uint32_t other;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;"
               : "=r"(other)
               : "r"(shared_address(p)), "r"(rank));
  return other;
}
__device__ __forceinline__ void store_of_rank(float4* p, float4 v, int rank, uint64_t* barrier) {
  asm volatile(
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1, %2, %3, %4}, [%5];" ::
          "r"(address_of_rank(p, rank)),
      "f"(v.x), "f"(v.y), "f"(v.z), "f"(v.w), "r"(address_of_rank(barrier, rank))
      : "memory");
}
__device__ __forceinline__ void store_of_rank(float2* p, float2 v, int rank, uint64_t* barrier) {
  asm volatile(
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [%0], {%1, %2}, [%3];" ::"r"(
          address_of_rank(p, rank)),
      "f"(v.x), "f"(v.y), "r"(address_of_rank(barrier, rank))
      : "memory");
}
#endif

}  // namespace ktx::kernels

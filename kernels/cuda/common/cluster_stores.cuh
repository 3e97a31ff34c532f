// Blocks of a cluster that tell each other values (sm_90): each writes into the shared memory of
// who wants them, where a barrier counts the bytes that have come.
//
//   // one thread, then a barrier of the block:
//   barrier_init(&there, 1), barrier_init_done(), expect_bytes(&there, 32);
//   begin_in_cluster();                      // all threads
//   await_cluster();                         // all blocks run, their barriers are made
//   store_of_rank(&values[own_rank], v, rank, &there);
//   barrier_wait(&there, 0);
//
// Nobody waits for what he has sent. A block that has ended is not waited for at
// begin_in_cluster().
#pragma once

#include <cstdint>

#include "kernels/cuda/common/bulk_copy.cuh"

namespace ktx::kernels {

#if __CUDA_ARCH__ >= 900
__device__ __forceinline__ void expect_bytes(uint64_t* barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(shared_address(barrier)),
               "r"(bytes)
               : "memory");
}
// The halves of a barrier of the cluster behind which only barriers made before are seen.
__device__ __forceinline__ void begin_in_cluster() {
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}
__device__ __forceinline__ void await_cluster() {
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
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

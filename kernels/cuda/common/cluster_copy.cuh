// Bulk copies into the shared memory of all blocks of a cluster (sm_90), and its barrier in two
// halves. As in bulk_copy.cuh, addresses and sizes are multiples of 16.
//
//   barrier_expect(&full, bytes);                          // each block: all that comes to it
//   copy_to_cluster(to, from, bytes / blocks, &full, all)  // each block its share, to all of them
#pragma once

#include "kernels/cuda/common/bulk_copy.cuh"

namespace ktx::kernels {

#if __CUDA_ARCH__ >= 900
// Arrives at a barrier behind which so many bytes have come.
__device__ __forceinline__ void barrier_expect(uint64_t* barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(shared_address(barrier)),
               "r"(bytes)
               : "memory");
}
// To the same place in each block of `blocks` (a bit for each rank), telling the barrier there.
__device__ __forceinline__ void copy_to_cluster(void* shared, const void* global, int bytes,
                                                uint64_t* barrier, uint16_t blocks) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], "
      "[%1], %2, [%3], %4;" ::"r"(shared_address(shared)),
      "l"(global), "r"(bytes), "r"(shared_address(barrier)), "h"(blocks)
      : "memory");
}
// All threads of the cluster arrive, and none goes on from the wait before.
__device__ __forceinline__ void arrive_at_cluster() {
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}
__device__ __forceinline__ void wait_after_arrival() {
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}
#endif

}  // namespace ktx::kernels

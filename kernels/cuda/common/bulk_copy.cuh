// Bulk copies between global and shared memory (sm_90), and the barriers that show their end.
//
//   barrier_init(&bar, 1);                 // one arrival: that of who starts the copy
//   bulk_copy(shared, global, bytes, &bar);
//   barrier_wait(&bar, phase);             // 0 the first time, then 1, 0, 1 ...
//
// Addresses and sizes are multiples of 16.
#pragma once

#include <cstdint>

namespace ktx::kernels {

#if __CUDA_ARCH__ >= 900
__device__ __forceinline__ uint32_t shared_address(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}
__device__ __forceinline__ void barrier_init(uint64_t* barrier, int arrivals) {
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals));
}
// Makes barriers that this thread has made known to the copy engine.
__device__ __forceinline__ void barrier_init_done() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
__device__ __forceinline__ void bulk_copy(void* shared, const void* global, int bytes,
                                          uint64_t* barrier) {
  asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(shared_address(barrier)),
               "r"(bytes)
               : "memory");
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(shared_address(shared)),
      "l"(global), "r"(bytes), "r"(shared_address(barrier))
      : "memory");
}
// The same for bytes without early reuse (weights): L2 evicts them first.
__device__ __forceinline__ void bulk_copy_once(void* shared, const void* global, int bytes,
                                               uint64_t* barrier) {
  uint64_t policy;
  asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(shared_address(barrier)),
               "r"(bytes)
               : "memory");
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], "
      "%2, [%3], %4;" ::"r"(shared_address(shared)),
      "l"(global), "r"(bytes), "r"(shared_address(barrier)), "l"(policy)
      : "memory");
}
// What this thread has read of shared memory, it has read before a bulk copy overwrites it that is
// asked for behind the next barrier of the warp or block.
__device__ __forceinline__ void end_reads_before_bulk_copies() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
// What this thread has written to shared memory is seen by a bulk copy from there that is asked for
// behind the next barrier of the warp or block.
__device__ __forceinline__ void publish_to_bulk_copies() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
// From shared to global memory; a group by itself.
__device__ __forceinline__ void bulk_store(void* global, const void* shared, int bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(global),
               "r"(shared_address(shared)), "r"(bytes)
               : "memory");
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
// All bulk stores of this thread: have read shared memory; have ended.
__device__ __forceinline__ void wait_for_bulk_store_reads() {
  asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}
__device__ __forceinline__ void wait_for_bulk_stores() {
  asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}
__device__ __forceinline__ void barrier_arrive(uint64_t* barrier) {
  asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
}
__device__ __forceinline__ void barrier_wait(uint64_t* barrier, uint32_t phase) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared.b64 done, [%0], %1;\n"
      "@!done bra again;\n"
      "}" ::"r"(shared_address(barrier)),
      "r"(phase)
      : "memory");
}
#endif

}  // namespace ktx::kernels

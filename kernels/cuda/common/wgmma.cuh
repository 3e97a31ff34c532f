// The asynchronous tensor-core products of Hopper (sm_90a): four warps together, A from
// registers or shared memory, B from shared memory.
//
//   c[64 x n] = (more ? c : 0) + a[64 x 16] * b[16 x n], halves into floats
//
// Warp i of the four (a warpgroup) has rows 16i .. 16i + 15 of a and c, in the registers in which
// mma.m16n8k16 has them (mma_f16, mma.cuh); c[j] are columns 8j .. 8j + 7. No thread may touch the
// registers before wait_wgmma.
//
// b: n rows of 64 halves (128 bytes), in which 16-byte pieces stand at piece ^ (row % 8) (the
// 128-byte swizzle), 1024-byte aligned; wgmma_rows makes the descriptor of its 16 columns
// from byte 32 * k on. a from shared memory: 64 rows in the same form.
#pragma once

#include <cstdint>

namespace ktx::kernels {

__device__ __forceinline__ uint64_t wgmma_rows(const void* rows, int k) {
  const uint32_t address = static_cast<uint32_t>(__cvta_generic_to_shared(rows)) + 32 * k;
  constexpr uint64_t kSwizzle128 = uint64_t{1} << 62;
  constexpr uint64_t kEightRows = uint64_t{1024 / 16} << 32;  // apart
  constexpr uint64_t kUnused = uint64_t{1} << 16;
  return kSwizzle128 | kEightRows | kUnused | ((address & 0x3ffff) >> 4);
}

// b in the other order: 64 of its columns in a row of 128 bytes, swizzled as above, a row for each
// k; the next 64 columns `panel_bytes` further on. The descriptor of rows 16 * k .. 16 * k + 15.
__device__ __forceinline__ uint64_t wgmma_columns(const void* rows, int k, int panel_bytes) {
  const uint32_t address = static_cast<uint32_t>(__cvta_generic_to_shared(rows)) + 2048 * k;
  constexpr uint64_t kSwizzle128 = uint64_t{1} << 62;
  constexpr uint64_t kEightRows = uint64_t{1024 / 16} << 32;  // apart
  return kSwizzle128 | kEightRows | static_cast<uint64_t>(panel_bytes / 16) << 16 |
         ((address & 0x3ffff) >> 4);
}

// What was written to registers is seen by the products that follow.
__device__ __forceinline__ void fence_wgmma() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void commit_wgmma() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <int kPending>
__device__ __forceinline__ void wait_wgmma() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}
// The compiler takes registers for ready where a product is asked for: behind wait_wgmma this says
// that they are so only now (sums), or were needed until now (a).
template <int kCount>
__device__ __forceinline__ void ready(float (&c)[kCount][4]) {
#pragma unroll
  for (int j = 0; j < kCount; ++j) {
    asm volatile("" : "+f"(c[j][0]), "+f"(c[j][1]), "+f"(c[j][2]), "+f"(c[j][3])::"memory");
  }
}
template <int kCount>
__device__ __forceinline__ void ready(uint32_t (&a)[kCount][4]) {
#pragma unroll
  for (int j = 0; j < kCount; ++j) {
    asm volatile("" : "+r"(a[j][0]), "+r"(a[j][1]), "+r"(a[j][2]), "+r"(a[j][3])::"memory");
  }
}
// What this thread wrote to shared memory is seen by the products of all, after a barrier.
__device__ __forceinline__ void show_to_wgmma() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// A barrier of some of the block's threads: `name` 1 to 15.
__device__ __forceinline__ void meet_at(int name, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(name), "r"(threads) : "memory");
}

// Registers of each thread from here on, for all of a warpgroup: those that one gives back others
// get.
template <int kCount>
__device__ __forceinline__ void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kCount));
}
template <int kCount>
__device__ __forceinline__ void get_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kCount));
}

// Copies from global to shared memory that one thread starts, of a multiple of 16 bytes. A
// barrier counts them: bytes_to_come says how many bytes there will be in all, and when they
// have come its phase (0, 1, 0 ...) is over.
__device__ __forceinline__ uint32_t shared_address(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}
__device__ __forceinline__ void start_barrier(uint64_t* barrier, int arrivals = 1) {
  asm volatile(
      "mbarrier.init.shared::cta.b64 [%0], %1;\nfence.mbarrier_init.release.cluster;" ::"r"(
          shared_address(barrier)),
      "r"(arrivals)
      : "memory");
}
__device__ __forceinline__ void arrive(uint64_t* barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier))
               : "memory");
}
// Arrives when the copies (copy_async16) that this thread has asked for are there.
__device__ __forceinline__ void arrive_when_copied(uint64_t* barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(shared_address(barrier))
               : "memory");
}
__device__ __forceinline__ void bytes_to_come(uint64_t* barrier, int bytes) {
  asm volatile(
      "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)),
      "r"(bytes)
      : "memory");
}
__device__ __forceinline__ void copy_bulk(void* shared, const void* global, int bytes,
                                          uint64_t* barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(shared_address(shared)),
      "l"(global), "r"(bytes), "r"(shared_address(barrier))
      : "memory");
}
__device__ __forceinline__ bool phase_is_over(const uint64_t* barrier, uint32_t phase) {
  uint32_t over = 0;
  asm volatile(
      "{.reg .pred over;\n"
      "mbarrier.try_wait.parity.shared::cta.b64 over, [%1], %2;\n"
      "selp.u32 %0, 1, 0, over;}"
      : "=r"(over)
      : "r"(shared_address(barrier)), "r"(phase)
      : "memory");
  return over != 0;
}
__device__ __forceinline__ void wait_phase(const uint64_t* barrier, uint32_t phase) {
  while (!phase_is_over(barrier, phase)) {
  }
}

#define KTX_C4(j) "+f"(c[j][0]), "+f"(c[j][1]), "+f"(c[j][2]), "+f"(c[j][3])
#define KTX_C8(j) KTX_C4(j), KTX_C4(j + 1)
#define KTX_C32(j) KTX_C8(j), KTX_C8(j + 2), KTX_C8(j + 4), KTX_C8(j + 6)
__device__ __forceinline__ void wgmma_f16(float (&c)[2][4], const uint32_t* a, uint64_t b,
                                          bool more) {
  asm volatile(
      "{.reg .pred more;\nsetp.ne.b32 more, %13, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n16k16.f32.f16.f16 {%0, %1, %2, %3, %4, %5, %6, %7}, "
      "{%8, %9, %10, %11}, %12, more, 1, 1, 0;}"
      : KTX_C8(0)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(int{more}));
}

__device__ __forceinline__ void wgmma_f16(float (&c)[4][4], const uint32_t* a, uint64_t b,
                                          bool more) {
  asm volatile(
      "{.reg .pred more;\nsetp.ne.b32 more, %21, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n32k16.f32.f16.f16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, "
      "{%16, %17, %18, %19}, %20, more, 1, 1, 0;}"
      : KTX_C8(0), KTX_C8(2)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(int{more}));
}

__device__ __forceinline__ void wgmma_f16(float (&c)[8][4], const uint32_t* a, uint64_t b,
                                          bool more) {
  asm volatile(
      "{.reg .pred more;\nsetp.ne.b32 more, %37, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
      "{%32, %33, %34, %35}, %36, more, 1, 1, 0;}"
      : KTX_C8(0), KTX_C8(2), KTX_C8(4), KTX_C8(6)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(int{more}));
}

__device__ __forceinline__ void wgmma_f16(float (&c)[16][4], const uint32_t* a, uint64_t b,
                                          bool more) {
  asm volatile(
      "{.reg .pred more;\nsetp.ne.b32 more, %69, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
      "{%64, %65, %66, %67}, %68, more, 1, 1, 0;}"
      : KTX_C8(0), KTX_C8(2), KTX_C8(4), KTX_C8(6), KTX_C8(8), KTX_C8(10), KTX_C8(12), KTX_C8(14)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(int{more}));
}

// a from shared memory: of wgmma_rows.
__device__ __forceinline__ void wgmma_f16(float (&c)[8][4], uint64_t a, uint64_t b, bool more) {
  asm volatile(
      "{.reg .pred more;\nsetp.ne.b32 more, %34, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
      "%32, %33, more, 1, 1, 0, 0;}"
      : KTX_C8(0), KTX_C8(2), KTX_C8(4), KTX_C8(6)
      : "l"(a), "l"(b), "r"(int{more}));
}
__device__ __forceinline__ void wgmma_f16(float (&c)[16][4], uint64_t a, uint64_t b, bool more) {
  asm volatile(
      "{.reg .pred more;\nsetp.ne.b32 more, %66, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
      "%64, %65, more, 1, 1, 0, 0;}"
      : KTX_C8(0), KTX_C8(2), KTX_C8(4), KTX_C8(6), KTX_C8(8), KTX_C8(10), KTX_C8(12), KTX_C8(14)
      : "l"(a), "l"(b), "r"(int{more}));
}

// c += a * b, with b from wgmma_columns.
__device__ __forceinline__ void wgmma_f16_columns(float (&c)[8][4], const uint32_t* a, uint64_t b) {
  asm volatile(
      "{.reg .pred more;\nsetp.ne.b32 more, 1, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
      "{%32, %33, %34, %35}, %36, more, 1, 1, 1;}"
      : KTX_C32(0)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}
__device__ __forceinline__ void wgmma_f16_columns(float (&c)[10][4], const uint32_t* a,
                                                  uint64_t b) {
  asm volatile(
      "{.reg .pred more;\nsetp.ne.b32 more, 1, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n80k16.f32.f16.f16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39}, "
      "{%40, %41, %42, %43}, %44, more, 1, 1, 1;}"
      : KTX_C32(0), KTX_C8(8)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}
__device__ __forceinline__ void wgmma_f16_columns(float (&c)[12][4], const uint32_t* a,
                                                  uint64_t b) {
  asm volatile(
      "{.reg .pred more;\nsetp.ne.b32 more, 1, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n96k16.f32.f16.f16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47}, "
      "{%48, %49, %50, %51}, %52, more, 1, 1, 1;}"
      : KTX_C32(0), KTX_C8(8), KTX_C8(10)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}
__device__ __forceinline__ void wgmma_f16_columns(float (&c)[16][4], const uint32_t* a,
                                                  uint64_t b) {
  asm volatile(
      "{.reg .pred more;\nsetp.ne.b32 more, 1, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
      "{%64, %65, %66, %67}, %68, more, 1, 1, 1;}"
      : KTX_C32(0), KTX_C32(8)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}
__device__ __forceinline__ void wgmma_f16_columns(float (&c)[32][4], const uint32_t* a,
                                                  uint64_t b) {
  asm volatile(
      "{.reg .pred more;\nsetp.ne.b32 more, 1, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n256k16.f32.f16.f16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "
      "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "
      "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "
      "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, "
      "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127}, "
      "{%128, %129, %130, %131}, %132, more, 1, 1, 1;}"
      : KTX_C32(0), KTX_C32(8), KTX_C32(16), KTX_C32(24)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}
#undef KTX_C32
#undef KTX_C8
#undef KTX_C4

}  // namespace ktx::kernels

// One instruction per function: tensor-core products, packed halves, asynchronous copies.
#pragma once

#include <cuda_fp16.h>

#include <cstdint>

namespace ktx::kernels {

// c[16 x 8] += a[16 x 16] * b[16 x 8], halves into floats. Lane 4 * g + t holds of a rows
// g (a[0], a[2]) and g + 8 (a[1], a[3]), of b column g, of c rows g (c[0], c[1]) and g + 8
// at columns 2t and 2t + 1.
__device__ __forceinline__ void mma_f16(float (&c)[4], const uint32_t (&a)[4], uint32_t b0,
                                        uint32_t b1) {
#if __CUDA_ARCH__ >= 800
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#else  // Turing has the half of it
  asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, "
      "{%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(b0));
  asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, "
      "{%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[2]), "r"(a[3]), "r"(b1));
#endif
}

// The same with sums that begin here.
__device__ __forceinline__ void mma_f16_new(float (&c)[4], const uint32_t (&a)[4], uint32_t b0,
                                            uint32_t b1) {
#if __CUDA_ARCH__ >= 800
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%10,%10,%10,%10};"
      : "=f"(c[0]), "=f"(c[1]), "=f"(c[2]), "=f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "f"(0.0f));
#else
  c[0] = c[1] = c[2] = c[3] = 0;
  mma_f16(c, a, b0, b1);
#endif
}

// c[16 x 8] += a[16 x 32] * b[32 x 8], bytes into integers; a's are signed or not, b's are
// signed. Lane 4 * g + t holds of a columns 4t .. 4t + 3 (a[0], a[1]) and 16 + 4t .. (a[2], a[3])
// of rows g and g + 8, of b the same of column g; c as above.
template <bool kSigned>
__device__ __forceinline__ void mma_bytes(int32_t (&c)[4], const uint32_t (&a)[4], uint32_t b0,
                                          uint32_t b1) {
#if __CUDA_ARCH__ >= 800
#define KTX_MMA_BYTES(type)                                           \
  asm("mma.sync.aligned.m16n8k32.row.col.s32." type                   \
      ".s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};" \
      : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])                \
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1))
#else  // Turing has the quarter of it
#define KTX_MMA_BYTES(type)                                                                  \
  _Pragma("unroll") for (int i = 0; i < 4; ++i) {                                            \
    asm("mma.sync.aligned.m8n8k16.row.col.s32." type ".s8.s32 {%0,%1}, {%2}, {%3}, {%0,%1};" \
        : "+r"(c[i % 2 * 2]), "+r"(c[i % 2 * 2 + 1])                                         \
        : "r"(a[i]), "r"(i < 2 ? b0 : b1));                                                  \
  }
#endif
  if constexpr (kSigned) {
    KTX_MMA_BYTES("s8");
  } else {
    KTX_MMA_BYTES("u8");
  }
#undef KTX_MMA_BYTES
}

// (a & b) | c in one instruction.
__device__ __forceinline__ uint32_t and_or(uint32_t a, uint32_t b, uint32_t c) {
  uint32_t d;
  asm("lop3.b32 %0, %1, %2, %3, 0xEA;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
  return d;
}

__device__ __forceinline__ half2 as_half2(uint32_t bits) {
  return *reinterpret_cast<half2*>(&bits);
}
__device__ __forceinline__ uint32_t as_bits(half2 value) {
  return *reinterpret_cast<uint32_t*>(&value);
}
__device__ __forceinline__ uint32_t pack_halves(float low, float high) {
  return as_bits(__floats2half2_rn(low, high));
}

// Programmatic dependent launch (sm_90): a kernel may start while the one before it in the
// stream drains. begin_kernel() stands before anything else in a kernel; one that can do
// something without its inputs (ask for weights) calls the two parts by themselves. Every
// kernel must wait, even if it needed nothing: the next one relies on all before it.
__device__ __forceinline__ void let_next_kernel_start() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}
__device__ __forceinline__ void wait_for_inputs() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
__device__ __forceinline__ void begin_kernel() {
  let_next_kernel_start();
  wait_for_inputs();
}

// Clusters of blocks (sm_90): all meet, and read each other's shared memory.
__device__ __forceinline__ void meet_cluster() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::
                   : "memory");
#endif
}
// The same, where nothing that was written needs to be seen.
__device__ __forceinline__ void wait_for_cluster() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.arrive.relaxed.aligned;\nbarrier.cluster.wait.aligned;" ::
                   : "memory");
#endif
}
// `p` points into this block's shared memory; the values are those of block `rank` of the
// cluster.
__device__ __forceinline__ float4 load_of_rank(const float4* p, int rank) {
#if __CUDA_ARCH__ >= 900
  const uint32_t own = static_cast<uint32_t>(__cvta_generic_to_shared(p));
  uint32_t other;
  float4 v;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(other) : "r"(own), "r"(rank));
  asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
               : "r"(other)
               : "memory");
  return v;
#else
  (void)rank;
  return *p;
#endif
}

__device__ __forceinline__ float load_of_rank(const float* p, int rank) {
#if __CUDA_ARCH__ >= 900
  const uint32_t own = static_cast<uint32_t>(__cvta_generic_to_shared(p));
  uint32_t other;
  float v;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(other) : "r"(own), "r"(rank));
  asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(v) : "r"(other) : "memory");
  return v;
#else
  (void)rank;
  return *p;
#endif
}

// Weights are read once: keep them out of L1.
__device__ __forceinline__ uint4 load_stream(const uint4* p) {
  uint4 v;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(p));
  return v;
}

// Prefetches a line of 128 bytes into L2, for a read that follows soon.
__device__ __forceinline__ void prefetch_l2(const void* p) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(p));
}

// 16 bytes from global to shared memory, or zeros.
__device__ __forceinline__ void copy_async16(void* shared, const void* global, bool valid) {
  const uint32_t address = static_cast<uint32_t>(__cvta_generic_to_shared(shared));
#if __CUDA_ARCH__ >= 800
  const int bytes = valid ? 16 : 0;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address), "l"(global),
               "r"(bytes));
#else
  const uint4 v = valid ? *static_cast<const uint4*>(global) : uint4{0, 0, 0, 0};
  asm volatile("st.shared.v4.u32 [%0], {%1,%2,%3,%4};" ::"r"(address), "r"(v.x), "r"(v.y), "r"(v.z),
               "r"(v.w));
#endif
}
__device__ __forceinline__ void commit_async() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.commit_group;");
#endif
}
template <int kPending>
__device__ __forceinline__ void wait_async() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending));
#endif
}

template <class T>
__device__ __forceinline__ T warp_sum(T v) {
  for (int o = 16; o > 0; o /= 2) v += __shfl_xor_sync(~0u, v, o);
  return v;
}
// The sum over all threads of a block of kThreads, the same in each; may be called again at once.
template <int kThreads>
__device__ __forceinline__ float block_sum(float v) {
  __shared__ float partial[kThreads / 32];
  v = warp_sum(v);
  if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = v;
  __syncthreads();
  float sum = 0;
  for (int w = 0; w < kThreads / 32; ++w) sum += partial[w];
  __syncthreads();
  return sum;
}
__device__ __forceinline__ float warp_max(float v) {
  for (int o = 16; o > 0; o /= 2) v = fmaxf(v, __shfl_xor_sync(~0u, v, o));
  return v;
}

// The largest of all lanes of a value that is not negative.
__device__ __forceinline__ float warp_largest(float v) {
#if __CUDA_ARCH__ >= 800
  return __uint_as_float(__reduce_max_sync(~0u, __float_as_uint(v)));
#else
  return warp_max(v);
#endif
}

}  // namespace ktx::kernels

// One head of q or k on its way into attention: RMS norm and rope, by one warp.
#pragma once

#include "kernels/cuda/attention/cuda_attention.h"
#include "kernels/cuda/common/mma.cuh"

namespace ktx::kernels {

// Cosine and sine of pair i, times mscale. Equations: kernels/rope.
__device__ __forceinline__ float2 rope_turn(const CudaAttentionPrepare& p, int position, int i) {
  float s, c;
  sincosf(static_cast<float>(position) * p.inv_freq[i], &s, &c);
  return {c * p.rope.mscale, s * p.rope.mscale};
}

// The position that a token is rotated by.
__device__ __forceinline__ int rope_position(const CudaAttentionArgs& a, int64_t token) {
  return max(a.prepare.time ? a.prepare.time[token] : a.kv.position[token], 0);
}

// out[dim] in shared memory, this warp's alone; `norm` may be null. turn(i): rope_turn of pair i.
template <class Turn>
__device__ __forceinline__ void prepare_head(const float* x, int dim, const float* norm, float eps,
                                             const RopeAttrs& rope, float* out, int lane,
                                             Turn turn) {
  float squares = 0;
#pragma unroll 4
  for (int i = lane; i < dim; i += 32) {
    out[i] = x[i];
    squares = fmaf(x[i], x[i], squares);
  }
  if (norm) {
    const float scale = 1 / sqrtf(warp_sum(squares) / static_cast<float>(dim) + eps);
    for (int i = lane; i < dim; i += 32) out[i] = out[i] * scale * norm[i];
  }
  __syncwarp();
  const int half = rope.rotary_dim / 2;
  const bool interleaved = rope.interleaved != 0;
  for (int i = lane; i < half; i += 32) {
    const float2 t = turn(i);
    float* first = out + rope.rotary_begin + (interleaved ? 2 * i : i);
    float* other = first + (interleaved ? 1 : half);
    const float x0 = *first, x1 = *other;
    *first = x0 * t.x - x1 * t.y;
    *other = x0 * t.y + x1 * t.x;
  }
  __syncwarp();
}
__device__ inline void prepare_head(const float* x, int dim, const float* norm, float eps,
                                    const CudaAttentionPrepare& p, int position, float* out,
                                    int lane) {
  prepare_head(x, dim, norm, eps, p.rope, out, lane,
               [&](int i) { return rope_turn(p, position, i); });
}

}  // namespace ktx::kernels

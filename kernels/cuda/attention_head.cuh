// One head of q or k on its way into attention: RMS norm and rope, by one warp.
#pragma once

#include "kernels/cuda/cuda_attention.h"
#include "kernels/cuda/mma.cuh"

namespace ktx::kernels {

// out[dim] in shared memory, this warp's alone; `norm` may be null. Equations: kernels/norm,
// kernels/rope.
__device__ inline void prepare_head(const float* x, int dim, const float* norm, float eps,
                                    const CudaAttentionPrepare& p, int position, float* out,
                                    int lane) {
  float squares = 0;
  for (int i = lane; i < dim; i += 32) {
    out[i] = x[i];
    squares = fmaf(x[i], x[i], squares);
  }
  if (norm) {
    const float scale = 1 / sqrtf(warp_sum(squares) / static_cast<float>(dim) + eps);
    for (int i = lane; i < dim; i += 32) out[i] = out[i] * scale * norm[i];
  }
  __syncwarp();
  const int half = p.rope.rotary_dim / 2;
  const bool interleaved = p.rope.interleaved != 0;
  for (int i = lane; i < half; i += 32) {
    float s, c;
    sincosf(static_cast<float>(position) * p.inv_freq[i], &s, &c);
    s *= p.rope.mscale;
    c *= p.rope.mscale;
    float* first = out + p.rope.rotary_begin + (interleaved ? 2 * i : i);
    float* other = first + (interleaved ? 1 : half);
    const float x0 = *first, x1 = *other;
    *first = x0 * c - x1 * s;
    *other = x0 * s + x1 * c;
  }
  __syncwarp();
}

}  // namespace ktx::kernels

// What the kernels of one token do at their end: sums of a warp's lanes, and a thread's output.
#pragma once

#include "kernels/cuda/gemv/marlin_gemv.h"

namespace ktx::kernels {

// The sum of a warp's lanes for rows 0 .. 15, to sums[row].
__device__ __forceinline__ void put_sums(float (&total)[2], float* sums, int lane) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    float v = total[r];
    v += __shfl_xor_sync(~0u, v, 1);
    v += __shfl_xor_sync(~0u, v, 2);
    if (lane % 4 == 0) sums[lane / 4 + 8 * r] = v;
    total[r] = 0;
  }
}

// gate . x of `cols` columns, a multiple of 4, by a warp.
__device__ __forceinline__ float row_score(const float* gate, const float* x, int cols, int lane) {
  float sum = 0;
#pragma unroll 4
  for (int k = 4 * lane; k < cols; k += 128) {
    const float4 a = *reinterpret_cast<const float4*>(gate + k);
    const float4 b = *reinterpret_cast<const float4*>(x + k);
    sum = fmaf(a.x, b.x, fmaf(a.y, b.y, fmaf(a.z, b.z, fmaf(a.w, b.w, sum))));
  }
  return warp_sum(sum);
}
// The weight of the shared expert for a token, which Choices has written.
__device__ __forceinline__ float shared_weight(const OneShared& shared, int token) {
  if (!shared.gate) return 1;
  return __fdividef(1, 1 + __expf(-__ldcg(shared.score + token * shared.score_stride)));
}

// The factor of the row from the squares of all its columns.
__device__ __forceinline__ float norm_factor(const OneProduct& p, float squares) {
  return 1 / sqrtf(squares / static_cast<float>(p.cols) + p.eps);
}

// Output `row` of strip `strip` of a dense product, and what is added to it.
template <bool kPaired>
struct DenseOutput {
  bool writes;
  float* y;
  float before = 0, bias[2] = {};  // bias: of gate and up
  // `mine`: whether there is such a strip.
  __device__ __forceinline__ DenseOutput(const OneRows& rows, bool mine, int strip, int row) {
    const int n = (rows.strip_begin() + strip) * 16 + row - rows.row_begin;
    writes = mine && n >= 0 && n < rows.row_count;
    y = rows.y + blockIdx.y * rows.y_stride + n;
    if (!writes) return;
    if (rows.accumulate) before = *y;
    if constexpr (kPaired) {
      if (rows.bias[0]) bias[0] = rows.bias[0][n];
      if (rows.bias[1]) bias[1] = rows.bias[1][n];
    } else if (rows.bias[0]) {
      before += rows.bias[0][n];
    }
  }
};

}  // namespace ktx::kernels

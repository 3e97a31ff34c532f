// Around the loops of the kernels of many tokens: pairs that no expert takes (marlin_gemm_mma.cuh,
// marlin_gemm_wgmma.cuh), and the way of a warp's sums to y (marlin_gemm_mma.cuh).
#pragma once

#include "kernels/cuda/common/cuda_launch.cuh"
#include "kernels/cuda/matmul/marlin_products.cuh"

namespace ktx::kernels {

// Marks padding pairs (place -1), which group_experts sorts to the end, as not computed. Only block
// (0, 0) does it.
template <int kThreads>
__device__ __forceinline__ void forget_pairs_of_no_expert(const MarlinProduct& p, int thread) {
  if (!p.places || blockIdx.x != 0 || blockIdx.y != 0) return;
  for (int i = p.offsets[p.experts] + thread; i < p.tokens; i += kThreads) {
    p.places[p.order[i]] = -1;
  }
}

// Sums of a warp's two strips from `strip_begin` on (paired: of gate and of up, which become
// one). Lane 4g + t has rows g, g + 8 of tokens 2t, 2t + 1 of every eight. `matrix`: the expert.
template <bool kPaired, int kEights>
__device__ __forceinline__ void write_block(const MarlinProduct& p,
                                            const float (&sum)[2][kEights][4], const float* scale,
                                            float* const* y_row, int tokens, int matrix,
                                            int strip_begin, int warp, int lane) {
#pragma unroll
  for (int n = 0; n < kEights; ++n) {
#pragma unroll
    for (int v = 0; v < 4; ++v) {
      const int token = 8 * n + lane % 4 * 2 + v % 2;
      if (token >= tokens) continue;
      const int row = lane / 4 + v / 2 * 8;
      if constexpr (kPaired) {
        const int out = (strip_begin + warp) * 16 + row - p.row_begin;
        if (out < 0 || out >= p.row_count) continue;
        const float gate = sum[0][n][v] * scale[token] + p.bias_of(0, matrix, out);
        const float up = sum[1][n][v] * scale[token] + p.bias_of(1, matrix, out);
        y_row[token][out] = row_glu(p.glu, gate, up);
      } else {
#pragma unroll
        for (int m = 0; m < 2; ++m) {
          const int out = (strip_begin + 2 * warp + m) * 16 + row - p.row_begin;
          if (out < 0 || out >= p.row_count) continue;
          float value = sum[m][n][v] * scale[token];
          if (p.bias[0]) value += p.bias_of(0, matrix, out);
          float* y = y_row[token] + out;
          *y = p.accumulate ? *y + value : value;
        }
      }
    }
  }
}

}  // namespace ktx::kernels

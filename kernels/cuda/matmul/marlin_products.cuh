// Products with marlin weights: what the two kernels (few and many tokens) are asked.
//
// One description serves matmul, one product per head, fused gate and up, and experts.
// The outputs of work item y of the grid:
//
//   dense    matrix y; x and y offset by y * x_head, y * y_head; rows are tokens (a block of
//            the few-token kernel takes 8 or 16 of them, and z counts such pieces)
//   experts  (offsets set) the y-th piece of at most kTokens pairs of one expert: matrix of
//            that expert, x row order[i] / x_div, y row order[i]
#pragma once

#include "kernels/cuda/common/mma.cuh"
#include "kernels/cuda/matmul/cuda_matmul.h"
#include "kernels/rows/glu.h"

namespace ktx::kernels {

struct MarlinProduct {
  const uint8_t* w[2] = {};  // the second: up, when the outputs are a gated unit (glu) of both
  int64_t matrix_bytes[2] = {};
  int64_t strip_bytes = 0;
  int cols = 0;
  int row_begin = 0, row_count = 0;  // rows of each matrix that take part
  const float* x = nullptr;
  int64_t x_stride = 0, x_head = 0;
  int tokens = 0;
  float* y = nullptr;
  int64_t y_stride = 0, y_head = 0;
  const float* bias[2] = {};  // of each matrix of w, or null
  int64_t bias_stride = 0;    // elements from one expert's to the next
  GluAttrs glu;
  bool accumulate = false;
  const int32_t* order = nullptr;
  const int32_t* offsets = nullptr;
  int32_t* places = nullptr;  // experts: where each pair stands in order; or null
  int experts = 0, x_div = 1;
  int matrices = 1;  // dense: heads

  // The kernel of many tokens: x in F16, rows of half_cols, with a scale per row.
  const uint16_t* xh = nullptr;
  const float* x_scale = nullptr;
  int64_t half_cols = 0;
  int64_t panel_rows = 0;  // of xh as HalfOrder::Panels; 0: rows

  // The bias of output `out` of matrix m (0, 1) of an expert.
  __device__ float bias_of(int m, int expert, int out) const {
    return bias[m] ? bias[m][expert * bias_stride + out] : 0;
  }

  // The strips of 16 rows that take part.
  __host__ __device__ int strip_begin() const { return row_begin / 16; }
  __host__ __device__ int strip_end() const { return (row_begin + row_count + 15) / 16; }
  __host__ __device__ int strips() const { return strip_end() - strip_begin(); }
};

constexpr int kSkinnyTokens = 16;

// Whether this program and this GPU have the GEMM of Hopper (marlin_gemm_wgmma.cuh).
bool marlin_gemm_wgmma_runs();

// The piece `number` of pairs of one expert, at most `most` in a piece. All threads of the
// block take part; `expert` is -1 when there is no such piece.
struct ExpertPiece {
  int expert, first, count;
};
inline __device__ ExpertPiece find_expert_piece(const int32_t* offsets, int experts, int number,
                                                int most) {
  __shared__ int warp_total[32];
  __shared__ ExpertPiece found;
  const int threads = static_cast<int>(blockDim.x), thread = static_cast<int>(threadIdx.x);
  const int lane = thread % 32, warp = thread / 32;
  const int share = (experts + threads - 1) / threads;
  if (thread == 0) found.expert = -1;
  int pieces = 0;
  for (int e = thread * share; e < min(experts, (thread + 1) * share); ++e) {
    pieces += (offsets[e + 1] - offsets[e] + most - 1) / most;
  }
  int sum = pieces;  // inclusive, of the warp
  for (int o = 1; o < 32; o *= 2) {
    const int below = __shfl_up_sync(~0u, sum, o);
    if (lane >= o) sum += below;
  }
  if (lane == 31) warp_total[warp] = sum;
  __syncthreads();
  int before = sum - pieces;
  for (int w = 0; w < warp; ++w) before += warp_total[w];
  if (number >= before && number < before + pieces) {
    for (int e = thread * share;; ++e) {
      const int count = offsets[e + 1] - offsets[e];
      const int here = (count + most - 1) / most;
      if (number < before + here) {
        const int first = (number - before) * most;
        found = {e, offsets[e] + first, min(most, count - first)};
        break;
      }
      before += here;
    }
  }
  __syncthreads();
  return found;
}

// No more pieces than this exist for any routing of `pairs` pairs.
inline int expert_pieces(int64_t pairs, int experts, int most) {
  const int64_t bound = experts + pairs / most;
  return static_cast<int>(pairs < bound ? pairs : bound);
}

}  // namespace ktx::kernels

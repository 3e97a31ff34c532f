// Matrices of one format whose products with the same activations are one launch of
// marlin_gemm_wgmma.cuh: q, k and v.
#pragma once

#include "kernels/cuda/common/cuda_launch.cuh"
#include "kernels/cuda/matmul/marlin_products.cuh"
#include "kernels/gpu/gpu_limits.h"

namespace ktx::kernels {

constexpr int kWideStrips = 16;  // of a block of rows

struct WidePart {
  const uint8_t* w = nullptr;
  int row_count = 0;
  float* y = nullptr;  // [tokens, row_count]
  int64_t y_stride = 0;
  const float* bias = nullptr;
  bool accumulate = false;
};

// Used instead of the product's own matrix, if there are any.
struct WideParts {
  int count = 0;
  int first[kLaunchProducts] = {};  // block of rows
  WidePart parts[kLaunchProducts];

  // Blocks of rows of all.
  int add(const WidePart& part, int blocks) {
    first[count] = blocks;
    parts[count++] = part;
    return blocks + ceil_div(part.row_count, 16 * kWideStrips);
  }
};

inline int wide_row_blocks(const MarlinProduct& p, const WideParts& parts) {
  if (parts.count == 0) return ceil_div(p.strips(), p.w[1] ? kWideStrips / 2 : kWideStrips);
  const int last = parts.count - 1;
  return parts.first[last] + ceil_div(parts.parts[last].row_count, 16 * kWideStrips);
}

}  // namespace ktx::kernels

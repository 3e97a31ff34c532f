// Which rows a product reads and writes, and what happens to a finished sum: the same
// lines for every variant. Private to kernels/matmul.
#pragma once

#include "kernels/matmul/matmul.h"

namespace ktx::kernels {

// static: each variant file gets its own copy, compiled with its own flags.
static inline int64_t pair_of(const MatmulArgs& a, int64_t i) {
  return a.index ? a.index[i] : i;
}

static inline int64_t x_row(const MatmulArgs& a, int64_t i) {
  const int64_t pair = pair_of(a, i);
  return a.x_div == 1 ? pair : pair / a.x_div;
}

static inline float* output(const MatmulArgs& a, int64_t i, int64_t n) {
  if (a.compact_y) return a.y + i * a.y_stride + n - a.row_begin;
  const int64_t pair = pair_of(a, i);
  return a.y + (a.y_div == 1 ? pair : pair / a.y_div) * a.y_stride + n;
}

static inline void store_output(const MatmulArgs& a, int64_t i, int64_t n, float v) {
  float* y = output(a, i, n);
  if (a.bias) v += a.bias[n];
  if (a.token_scale) v *= a.token_scale[pair_of(a, i)];
  *y = a.accumulate ? *y + v : v;
}

}  // namespace ktx::kernels

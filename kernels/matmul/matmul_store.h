// Which rows a product reads and writes, and what happens to a finished sum: the same
// lines for every variant. Private to kernels/matmul.
#pragma once

#include "kernels/matmul/matmul.h"
#include "lib/formats/layout_size.h"

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

// Outputs of token i and the rows of panel p that are in range, a lane each; over a vector
// policy (simd/README.md).
template <class V>
__attribute__((always_inline)) static inline void store_rows(const MatmulArgs& a, int64_t i,
                                                             int64_t p, typename V::F v) {
  const int64_t n = p * kPanelRows;
  if (n >= a.row_begin && n + kPanelRows <= a.row_end) {
    float* y = output(a, i, n);
    if (a.bias) v = V::add(v, V::load(a.bias + n));
    if (a.token_scale) v = V::mul(v, V::set1(a.token_scale[pair_of(a, i)]));
    V::store(y, a.accumulate ? V::add(V::load(y), v) : v);
    return;
  }
  alignas(64) float lanes[kPanelRows];
  V::store(lanes, v);
  for (int64_t r = 0; r < kPanelRows; ++r) {
    if (n + r >= a.row_begin && n + r < a.row_end) store_output(a, i, n + r, lanes[r]);
  }
}

}  // namespace ktx::kernels

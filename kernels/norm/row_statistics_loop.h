// match_rms and gaussian_topk over a vector policy (simd/README.md). Included by
// row_statistics_<isa>.cc only.
#pragma once

#include "kernels/norm/layer_norm_loop.h"
#include "kernels/norm/rms_norm_loop.h"
#include "kernels/norm/row_statistics.h"

namespace ktx::kernels {
namespace {

// y[0, n) = op(x[0, n)).
template <class V, class Op>
KTX_INLINE void each_of_row(const float* x, float* y, int64_t n, Op op) {
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) V::store(y + i, op(V::load(x + i)));
  if (i < n) V::store_part(y + i, n - i, op(V::load_part(x + i, n - i)));
}

template <class V>
void match_rms(const MatchRmsArgs& a) {
  for (int64_t t = a.token_begin; t < a.token_end; ++t) {
    const float* x = a.x + t * a.x_stride;
    const float* like = a.like + t * a.like_stride;
    const float size = sum_of_squares<V>(like, a.like_width) / static_cast<float>(a.like_width);
    const float mean = sum_of_squares<V>(x, a.width) / static_cast<float>(a.width);
    const float own = mean < a.attrs.eps ? a.attrs.eps : mean;
    const typename V::F factor = V::set1(__builtin_sqrtf(size) / __builtin_sqrtf(own));
    each_of_row<V>(
        x, a.y + t * a.y_stride,
        a.width, [=](typename V::F v) __attribute__((always_inline)) { return V::mul(v, factor); });
  }
}

template <class V>
void gaussian_topk(const GaussianTopKArgs& a) {
  for (int64_t t = a.token_begin; t < a.token_end; ++t) {
    const float* x = a.x + t * a.x_stride;
    const float count = static_cast<float>(a.width);
    const float mean = sum_of_elements<V>(x, a.width) / count;
    const float variance = sum_of_squared_differences<V>(x, a.width, V::set1(mean)) / count;
    const typename V::F cut = V::set1(mean + __builtin_sqrtf(variance) * a.attrs.deviations);
    each_of_row<V>(
        x, a.y + t * a.y_stride, a.width, [=](typename V::F v) __attribute__((always_inline)) {
          return V::max(V::zero(), V::sub(v, cut));
        });
  }
}

}  // namespace
}  // namespace ktx::kernels

// Layer norm over a vector policy (simd/README.md). Included by norm_<isa>.cc only.
#pragma once

#include "kernels/norm/norm.h"

namespace ktx::kernels {
namespace {

template <class V>
KTX_INLINE typename V::F first_lanes(const float* x, int64_t n) {
  return n < 16 ? V::load_part(x, n) : V::load(x);
}

// Sum of (x - mean)^2; the lanes past n are not counted.
template <class V>
KTX_INLINE float sum_of_squared_differences(const float* x, int64_t n, typename V::F mean) {
  typename V::F sum = V::zero();
  int64_t j = 0;
  for (; j + 16 <= n; j += 16) {
    const typename V::F d = V::sub(V::load(x + j), mean);
    sum = V::fma(d, d, sum);
  }
  if (j == n) return V::sum(sum);
  alignas(64) float last[16] = {};
  V::store(last, V::sub(V::load_part(x + j, n - j), mean));
  const typename V::F d = V::load_part(last, n - j);
  return V::sum(V::fma(d, d, sum));
}

template <class V>
KTX_INLINE float sum_of_elements(const float* x, int64_t n) {
  typename V::F sum = V::zero();
  int64_t j = 0;
  for (; j + 16 <= n; j += 16) sum = V::add(sum, V::load(x + j));
  if (j < n) sum = V::add(sum, V::load_part(x + j, n - j));
  return V::sum(sum);
}

template <class V>
void layer_norm(const LayerNormArgs& a) {
  const int64_t part = a.width / a.attrs.groups;
  for (int64_t t = a.token_begin; t < a.token_end; ++t) {
    for (int64_t g = 0; g < a.attrs.groups; ++g) {
      const float* x = a.x + t * a.x_stride + g * part;
      float* y = a.y + t * a.y_stride + g * part;
      const float* weight = a.weight + g * a.weight_step;
      const float count = static_cast<float>(part);
      const typename V::F mean = V::set1(sum_of_elements<V>(x, part) / count);
      const float variance = sum_of_squared_differences<V>(x, part, mean) / count;
      const typename V::F scale = V::set1(1 / __builtin_sqrtf(variance + a.attrs.eps));
      for (int64_t j = 0; j < part; j += 16) {
        const int64_t n = part - j < 16 ? part - j : 16;
        const typename V::F bias = a.bias != nullptr ? first_lanes<V>(a.bias + j, n) : V::zero();
        const typename V::F d = V::mul(V::sub(first_lanes<V>(x + j, n), mean), scale);
        const typename V::F out = V::fma(d, first_lanes<V>(weight + j, n), bias);
        if (n < 16) {
          V::store_part(y + j, n, out);
        } else {
          V::store(y + j, out);
        }
      }
    }
  }
}

}  // namespace
}  // namespace ktx::kernels

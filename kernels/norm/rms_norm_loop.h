// RMS norm over a vector policy (simd/README.md). Included by norm_<isa>.cc only.
#pragma once

#include "kernels/norm/norm.h"

namespace ktx::kernels {
namespace {

template <class V>
KTX_INLINE float sum_of_squares(const float* x, int64_t n) {
  typename V::F sum = V::zero();
  int64_t j = 0;
  for (; j + 16 <= n; j += 16) sum = V::fma(V::load(x + j), V::load(x + j), sum);
  if (j < n) sum = V::fma(V::load_part(x + j, n - j), V::load_part(x + j, n - j), sum);
  return V::sum(sum);
}

template <class V>
void rms_norm(const RmsNormArgs& a) {
  const int64_t part = a.width / a.attrs.groups;
  for (int64_t t = a.token_begin; t < a.token_end; ++t) {
    for (int64_t g = 0; g < a.attrs.groups; ++g) {
      const float* x = a.x + t * a.x_stride + g * part;
      float* y = a.y + t * a.y_stride + g * part;
      const float* weight = a.weight + g * a.weight_step;
      const float mean = sum_of_squares<V>(x, part) / static_cast<float>(part);
      const typename V::F scale = V::set1(1 / __builtin_sqrtf(mean + a.attrs.eps));
      int64_t j = 0;
      for (; j + 16 <= part; j += 16) {
        V::store(y + j, V::mul(V::mul(V::load(x + j), scale), V::load(weight + j)));
      }
      if (j < part) {
        const int64_t n = part - j;
        V::store_part(y + j, n,
                      V::mul(V::mul(V::load_part(x + j, n), scale), V::load_part(weight + j, n)));
      }
    }
  }
}

}  // namespace
}  // namespace ktx::kernels

// Rotary embedding with AVX2.
#include "kernels/rope/rope.h"
#include "kernels/rope/rope_table_avx2.h"

namespace ktx::kernels {

void rope_avx2(const RopeArgs& a);

void rope_avx2(const RopeArgs& a) {
  const int64_t half = a.attrs.rotary_dim / 2;
  float* cos = a.scratch;
  float* sin = a.scratch + half;
  for (int64_t t = a.token_begin; t < a.token_end; ++t) {
    const __m128 position = _mm_set1_ps(static_cast<float>(a.position[t]));
    fill_table([&](int64_t) { return position; }, a.inv_freq, a.attrs.mscale, half, cos, sin);
    for (int64_t h = 0; h < a.attrs.heads; ++h) {
      const float* x = a.x + t * a.x_stride + h * a.attrs.head_dim + a.attrs.rotary_begin;
      float* y = a.y + t * a.y_stride + h * a.attrs.y_head_dim + a.attrs.y_begin;
      (a.attrs.interleaved ? rotate_pairs : rotate_halves)(x, y, half, cos, sin);
    }
  }
}

}  // namespace ktx::kernels

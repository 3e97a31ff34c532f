// Rotary positions of tokens that have three, with AVX2.
#include "kernels/rope/rope_grid.h"
#include "kernels/rope/rope_table_avx2.h"

namespace ktx::kernels {

void rope_grid_avx2(const RopeGridArgs& a);

void rope_grid_avx2(const RopeGridArgs& a) {
  const int64_t half = a.attrs.rotary_dim / 2;
  float* cos = a.scratch;
  float* sin = a.scratch + half;
  for (int64_t t = a.token_begin; t < a.token_end; ++t) {
    const auto of_pair = [&](int64_t pair) {
      return static_cast<float>(a.position[static_cast<size_t>(a.attrs.axis_of(pair))][t]);
    };
    const auto of_four = [&](int64_t pair) {
      return _mm_setr_ps(of_pair(pair), of_pair(pair + 1), of_pair(pair + 2), of_pair(pair + 3));
    };
    fill_table(of_four, a.inv_freq, a.attrs.mscale, half, cos, sin);
    for (int64_t h = 0; h < a.attrs.heads; ++h) {
      float* y = a.y + t * a.y_stride + h * a.attrs.head_dim;
      (a.attrs.interleaved ? rotate_pairs : rotate_halves)(y, y, half, cos, sin);
    }
  }
}

}  // namespace ktx::kernels

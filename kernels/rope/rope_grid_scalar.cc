// Rotary positions of tokens that have three, with cos and sin of the F32 angle in double.
#include <cmath>

#include "kernels/rope/rope_grid.h"

namespace ktx::kernels {

void rope_grid_scalar(const RopeGridArgs& a);

void rope_grid_scalar(const RopeGridArgs& a) {
  const int64_t half = a.attrs.rotary_dim / 2;
  const bool interleaved = a.attrs.interleaved != 0;
  const int64_t step = interleaved ? 2 : 1;      // between the first elements of pairs
  const int64_t other = interleaved ? 1 : half;  // from first to second element
  for (int64_t t = a.token_begin; t < a.token_end; ++t) {
    for (int64_t i = 0; i < half; ++i) {
      const auto axis = static_cast<size_t>(a.attrs.axis_of(i));
      const double angle = static_cast<float>(a.position[axis][t]) * a.inv_freq[i];
      const float c = static_cast<float>(std::cos(angle)) * a.attrs.mscale;
      const float s = static_cast<float>(std::sin(angle)) * a.attrs.mscale;
      for (int64_t h = 0; h < a.attrs.heads; ++h) {
        float* y = a.y + t * a.y_stride + h * a.attrs.head_dim + i * step;
        const float first = y[0], second = y[other];
        y[0] = first * c - second * s;
        y[other] = first * s + second * c;
      }
    }
  }
}

}  // namespace ktx::kernels

// Rotary positions of patches. A tower runs it once an image: cos and sin of the C library will do.
#include <cmath>

#include "kernels/rope/rope_grid.h"

namespace ktx::kernels {

void rope_grid_scalar(const RopeGridArgs& a);

void rope_grid_scalar(const RopeGridArgs& a) {
  const int64_t half = a.attrs.head_dim / 2;
  const bool interleaved = a.attrs.interleaved != 0;
  const int64_t step = interleaved ? 2 : 1;      // between the first elements of pairs
  const int64_t other = interleaved ? 1 : half;  // from first to second element
  for (int64_t t = a.token_begin; t < a.token_end; ++t) {
    const int64_t line = a.position[t] / a.columns, column = a.position[t] % a.columns;
    for (int64_t i = 0; i < half; ++i) {
      const auto position = static_cast<float>(i < half / 2 ? line : column);
      const double angle = position * a.inv_freq[i];
      const auto c = static_cast<float>(std::cos(angle));
      const auto s = static_cast<float>(std::sin(angle));
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

// Rotary embedding with cos and sin of the F32 angle in double.
#include <cmath>

#include "kernels/rope/rope.h"

namespace ktx::kernels {

void rope_scalar(const RopeArgs& a);

void rope_scalar(const RopeArgs& a) {
  const int64_t half = a.attrs.rotary_dim / 2;
  const bool interleaved = a.attrs.interleaved != 0;
  const int64_t step = interleaved ? 2 : 1;      // between the first elements of pairs
  const int64_t other = interleaved ? 1 : half;  // from first to second element
  for (int64_t t = a.token_begin; t < a.token_end; ++t) {
    const float position = static_cast<float>(a.position[t]);
    for (int64_t i = 0; i < half; ++i) {
      const double angle = position * a.inv_freq[i];
      const float c = static_cast<float>(std::cos(angle)) * a.attrs.mscale;
      const float s = static_cast<float>(std::sin(angle)) * a.attrs.mscale;
      for (int64_t h = 0; h < a.attrs.heads; ++h) {
        const float* x =
            a.x + t * a.x_stride + h * a.attrs.head_dim + a.attrs.rotary_begin + i * step;
        float* y = a.y + t * a.y_stride + h * a.attrs.y_head_dim + a.attrs.y_begin + i * step;
        const float first = x[0], second = x[other];
        y[0] = first * c - second * s;
        y[other] = first * s + second * c;
      }
    }
  }
}

}  // namespace ktx::kernels

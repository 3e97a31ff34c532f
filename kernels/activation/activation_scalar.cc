// Element-wise ops, the exponential in double.
#include <cmath>
#include <cstring>

#include "kernels/activation/activation.h"

namespace ktx::kernels {

void swiglu_scalar(const SwigluArgs& a);
void add_scalar(const AddArgs& a);
void sigmoid_scale_scalar(const SigmoidScaleArgs& a);
void gather_rows_scalar(const GatherRowsArgs& a);

void swiglu_scalar(const SwigluArgs& a) {
  for (int64_t t = a.token_begin; t < a.token_end; ++t) {
    const float* gate = a.gate + t * a.gate_stride;
    const float* up = a.up + t * a.up_stride;
    float* y = a.y + t * a.y_stride;
    for (int64_t i = 0; i < a.width; ++i) {
      const double g = gate[i];
      y[i] = static_cast<float>(g / (1 + std::exp(-g))) * up[i];
    }
  }
}

void add_scalar(const AddArgs& a) {
  for (int64_t t = a.token_begin; t < a.token_end; ++t) {
    const float* x = a.a + t * a.a_stride;
    const float* b = a.b + t * a.b_stride;
    float* y = a.y + t * a.y_stride;
    for (int64_t i = 0; i < a.width; ++i) y[i] = x[i] + b[i];
  }
}

void sigmoid_scale_scalar(const SigmoidScaleArgs& a) {
  for (int64_t t = a.token_begin; t < a.token_end; ++t) {
    const double gate = a.gate[t * a.gate_stride];
    const float scale = static_cast<float>(1 / (1 + std::exp(-gate)));
    const float* x = a.x + t * a.x_stride;
    float* y = a.y + t * a.y_stride;
    for (int64_t i = 0; i < a.width; ++i) y[i] = x[i] * scale;
  }
}

void gather_rows_scalar(const GatherRowsArgs& a) {
  for (int64_t r = a.token_begin; r < a.token_end; ++r) {
    std::memcpy(a.y + r * a.y_stride, a.x + a.rows[r] * a.x_stride,
                static_cast<size_t>(a.width) * sizeof(float));
  }
}

}  // namespace ktx::kernels

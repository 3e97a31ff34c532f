// Norms with their sums in double.
#include <cmath>

#include "kernels/norm/norm.h"

namespace ktx::kernels {

void rms_norm_scalar(const RmsNormArgs& a);
void layer_norm_scalar(const LayerNormArgs& a);

void rms_norm_scalar(const RmsNormArgs& a) {
  const int64_t part = a.width / a.attrs.groups;
  for (int64_t t = a.token_begin; t < a.token_end; ++t) {
    for (int64_t g = 0; g < a.attrs.groups; ++g) {
      const float* x = a.x + t * a.x_stride + g * part;
      float* y = a.y + t * a.y_stride + g * part;
      const float* weight = a.weight + g * a.weight_step;
      double squares = 0;
      for (int64_t j = 0; j < part; ++j) squares += double{x[j]} * x[j];
      const float scale =
          static_cast<float>(1 / std::sqrt(squares / static_cast<double>(part) + a.attrs.eps));
      for (int64_t j = 0; j < part; ++j) y[j] = x[j] * scale * weight[j];
    }
  }
}

void layer_norm_scalar(const LayerNormArgs& a) {
  const int64_t part = a.width / a.attrs.groups;
  for (int64_t t = a.token_begin; t < a.token_end; ++t) {
    for (int64_t g = 0; g < a.attrs.groups; ++g) {
      const float* x = a.x + t * a.x_stride + g * part;
      float* y = a.y + t * a.y_stride + g * part;
      const float* weight = a.weight + g * a.weight_step;
      double mean = 0, squares = 0;
      for (int64_t j = 0; j < part; ++j) mean += x[j];
      mean /= static_cast<double>(part);
      for (int64_t j = 0; j < part; ++j) squares += (x[j] - mean) * (x[j] - mean);
      const double scale = 1 / std::sqrt(squares / static_cast<double>(part) + a.attrs.eps);
      for (int64_t j = 0; j < part; ++j) {
        const double bias = a.bias != nullptr ? a.bias[j] : 0;
        y[j] = static_cast<float>((x[j] - mean) * scale * weight[j] + bias);
      }
    }
  }
}

}  // namespace ktx::kernels

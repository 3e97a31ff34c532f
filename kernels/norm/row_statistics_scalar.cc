// Both with their sums in double.
#include <algorithm>
#include <cmath>

#include "kernels/norm/row_statistics.h"

namespace ktx::kernels {

void match_rms_scalar(const MatchRmsArgs& a);
void gaussian_topk_scalar(const GaussianTopKArgs& a);

namespace {

double mean_square(const float* x, int64_t n) {
  double squares = 0;
  for (int64_t i = 0; i < n; ++i) squares += double{x[i]} * x[i];
  return squares / static_cast<double>(n);
}

}  // namespace

void match_rms_scalar(const MatchRmsArgs& a) {
  for (int64_t t = a.token_begin; t < a.token_end; ++t) {
    const float* x = a.x + t * a.x_stride;
    const double size = mean_square(a.like + t * a.like_stride, a.like_width);
    const double own = std::max<double>(mean_square(x, a.width), a.attrs.eps);
    const auto factor = static_cast<float>(std::sqrt(size) / std::sqrt(own));
    for (int64_t i = 0; i < a.width; ++i) a.y[t * a.y_stride + i] = x[i] * factor;
  }
}

void gaussian_topk_scalar(const GaussianTopKArgs& a) {
  for (int64_t t = a.token_begin; t < a.token_end; ++t) {
    const float* x = a.x + t * a.x_stride;
    double mean = 0, squares = 0;
    for (int64_t i = 0; i < a.width; ++i) mean += x[i];
    mean /= static_cast<double>(a.width);
    for (int64_t i = 0; i < a.width; ++i) squares += (x[i] - mean) * (x[i] - mean);
    const double deviation = std::sqrt(squares / static_cast<double>(a.width));
    const auto cut = static_cast<float>(mean + deviation * a.attrs.deviations);
    for (int64_t i = 0; i < a.width; ++i) a.y[t * a.y_stride + i] = std::max(x[i] - cut, 0.0f);
  }
}

}  // namespace ktx::kernels

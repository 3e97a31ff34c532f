#include "lib/reference/arithmetic.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "lib/support/normal_quantile.h"

namespace ktx::reference {

double dot(const float* a, const float* b, size_t n) {
  double sum = 0;
  for (size_t i = 0; i < n; ++i) sum += static_cast<double>(a[i]) * b[i];
  return sum;
}

std::vector<float> glu(const GluAttrs& attrs, std::span<const float> gate,
                       std::span<const float> up) {
  std::vector<float> out(gate.size());
  for (size_t i = 0; i < out.size(); ++i) {
    double g = gate[i], u = up[i];
    const bool soft = attrs.activation == static_cast<int32_t>(Activation::Situ);
    if (attrs.activation == static_cast<int32_t>(Activation::SiluUpTo)) g /= 1 + std::exp(-g);
    if (attrs.limit > 0 && !soft) {
      const double limit = attrs.limit;
      g = std::min(g, limit);
      u = std::clamp(u, -limit, limit);
    }
    switch (static_cast<Activation>(attrs.activation)) {
      case Activation::Silu:
        g /= 1 + std::exp(-g);
        break;
      case Activation::GeluTanh:
        g *= 0.5 * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (g + 0.044715 * g * g * g)));
        break;
      case Activation::GptOss:
        g /= 1 + std::exp(-1.702 * g);
        u += 1;
        break;
      case Activation::Sigmoid:
        g = 1 / (1 + std::exp(-g));
        break;
      case Activation::Product:
      case Activation::SiluUpTo:
        break;
      case Activation::Relu:
        g = std::max(g, 0.0);
        break;
      case Activation::Situ:
        g = (attrs.limit > 0 ? attrs.limit * std::tanh(g / attrs.limit) : g) / (1 + std::exp(-g));
        if (attrs.up_limit > 0) u = attrs.up_limit * std::tanh(u / attrs.up_limit);
        break;
    }
    out[i] = static_cast<float>(g * u);
  }
  return out;
}

float unit(const ActivateAttrs& attrs, double x) {
  const double slope = attrs.slope * x;
  switch (static_cast<UnitFunction>(attrs.function)) {
    case UnitFunction::Silu:
      return static_cast<float>(x / (1 + std::exp(-x)));
    case UnitFunction::GeluTanh:
      x *= 0.5 * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
      return static_cast<float>(x);
    case UnitFunction::GeluErf:
      return static_cast<float>(0.5 * x * std::erfc(-x / std::numbers::sqrt2));
    case UnitFunction::Relu:
      return static_cast<float>(std::max(x, 0.0));
    case UnitFunction::ReluSquared:
      return static_cast<float>(std::max(x, 0.0) * std::max(x, 0.0));
    case UnitFunction::Tanh:
      return static_cast<float>(std::tanh(x));
    case UnitFunction::Xielu:
      if (x > 0) return static_cast<float>(attrs.rise * x * x + slope);
      x = std::expm1(std::min<double>(x, attrs.limit)) - x;
      return static_cast<float>(attrs.fall * x + slope);
    case UnitFunction::Clamp:
      return std::clamp(static_cast<float>(x), -attrs.limit, attrs.limit);
    case UnitFunction::SignedRoot:
      return static_cast<float>(
          x == 0 ? 0 : std::copysign(std::sqrt(std::max(std::abs(x), double{kLeastRooted})), x));
  }
  return NAN;
}

void clamp(float limit, std::span<float> x) {
  for (float& value : x) value = limit > 0 ? std::clamp(value, -limit, limit) : value;
}

void leave_out(double share, std::span<float> x) {
  const auto n = static_cast<double>(x.size());
  double mean = 0, squares = 0;
  for (const float value : x) mean += value / n;
  for (const float value : x) squares += (value - mean) * (value - mean);
  const double cut = mean + normal_quantile(share) * std::sqrt(squares / n);
  for (float& value : x) value = static_cast<float>(std::max(value - cut, 0.0));
}

float softcap(float x, float cap) {
  return cap > 0 ? static_cast<float>(cap * std::tanh(double{x} / cap)) : x;
}

void add_to(std::span<float> y, std::span<const float> x, float factor) {
  for (size_t i = 0; i < y.size(); ++i) y[i] += factor * x[i];
}

double mean_square(std::span<const float> x) {
  double sum = 0;
  for (const float value : x) sum += double{value} * value;
  return sum / static_cast<double>(x.size());
}

void match_size(std::span<float> x, std::span<const float> like) {
  const double factor = std::sqrt(mean_square(like)) / std::sqrt(std::max(mean_square(x), 1e-5));
  for (float& value : x) value = static_cast<float>(value * factor);
}

}  // namespace ktx::reference

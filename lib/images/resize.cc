#include "lib/images/resize.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace ktx::images {
namespace {

constexpr int kBits = 22;  // behind the point of a weight

// Which pixels of a line make one of the new line.
struct Weights {
  int64_t first = 0;
  std::vector<int32_t> of;
};

double triangle(double away) {
  away = std::abs(away);
  return away < 1 ? 1 - away : 0;
}

// Keys' cubic with a = -0.5.
double cubic(double away) {
  constexpr double a = -0.5;
  away = std::abs(away);
  if (away < 1) return ((a + 2) * away - (a + 3)) * away * away + 1;
  if (away < 2) return (((away - 5) * away + 8) * away - 4) * a;
  return 0;
}

struct Kernel {
  double (*weight)(double away);
  double reach;  // pixels, where an image keeps its size
};

Kernel kernel_of(Filter filter) {
  return filter == Filter::Bicubic ? Kernel{cubic, 2} : Kernel{triangle, 1};
}

std::vector<Weights> weights_of(int64_t from, int64_t to, const Kernel& kernel) {
  const double scale = static_cast<double>(from) / static_cast<double>(to);
  const double wider = std::max(scale, 1.0);
  const double reach = kernel.reach * wider;
  std::vector<Weights> all(static_cast<size_t>(to));
  std::vector<double> shares;
  for (int64_t i = 0; i < to; ++i) {
    const double middle = (static_cast<double>(i) + 0.5) * scale;
    const auto first = std::max<int64_t>(0, static_cast<int64_t>(middle - reach + 0.5));
    const auto last = std::min<int64_t>(from, static_cast<int64_t>(middle + reach + 0.5));
    shares.clear();
    double sum = 0;
    for (int64_t x = first; x < last; ++x) {
      shares.push_back(kernel.weight((static_cast<double>(x) - middle + 0.5) * (1.0 / wider)));
      sum += shares.back();
    }
    Weights& weights = all[static_cast<size_t>(i)];
    weights.first = first;
    for (const double share : shares) {
      const double part = sum != 0 ? share / sum : share;
      weights.of.push_back(static_cast<int32_t>((part < 0 ? -0.5 : 0.5) + part * (1 << kBits)));
    }
  }
  return all;
}

// One value, of `step` from pixel to pixel.
uint8_t mean(const uint8_t* from, int64_t step, const Weights& weights) {
  int64_t sum = int64_t{1} << (kBits - 1);
  for (const int32_t weight : weights.of) {
    sum += int64_t{*from} * weight;
    from += step;
  }
  return static_cast<uint8_t>(std::clamp<int64_t>(sum >> kBits, 0, 255));
}

}  // namespace

Filter filter_of(std::string_view name) {
  return name == "bicubic" ? Filter::Bicubic : Filter::Bilinear;
}

Image resized(const Image& image, int64_t width, int64_t height, Filter filter) {
  const Kernel kernel = kernel_of(filter);
  Image wide{width, image.height, {}};
  if (width == image.width) {
    wide.rgb = image.rgb;
  } else {
    const std::vector<Weights> columns = weights_of(image.width, width, kernel);
    wide.rgb.reserve(static_cast<size_t>(3 * width * image.height));
    for (int64_t y = 0; y < image.height; ++y) {
      const uint8_t* const line = image.rgb.data() + 3 * y * image.width;
      for (const Weights& weights : columns) {
        for (int c = 0; c < 3; ++c)
          wide.rgb.push_back(mean(line + 3 * weights.first + c, 3, weights));
      }
    }
  }
  if (height == image.height) return wide;
  Image out{width, height, {}};
  out.rgb.reserve(static_cast<size_t>(3 * width * height));
  for (const Weights& weights : weights_of(image.height, height, kernel)) {
    const uint8_t* const line = wide.rgb.data() + 3 * weights.first * width;
    for (int64_t x = 0; x < 3 * width; ++x) out.rgb.push_back(mean(line + x, 3 * width, weights));
  }
  return out;
}

}  // namespace ktx::images

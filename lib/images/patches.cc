#include "lib/images/patches.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "lib/images/resize.h"

namespace ktx::images {
namespace {

// What each value of a channel becomes.
using Levels = std::array<float, 256>;

Levels levels_of(double mean, double deviation) {
  Levels levels;
  for (size_t value = 0; value < levels.size(); ++value) {
    levels[value] = static_cast<float>((static_cast<double>(value) / 255 - mean) / deviation);
  }
  return levels;
}

// Squares that cover so many pixels.
int64_t squares_for(double pixels, int64_t square) {
  return std::max<int64_t>(1, (static_cast<int64_t>(pixels) + square - 1) / square);
}

// Sides in squares, rounded as Python does it: halves to the even number.
ImageSize size_by_pixels(ImageSize image, const plan::ImageFacts& facts) {
  const auto square = static_cast<double>(facts.square());
  const auto most = static_cast<double>(facts.most_pixels);
  const auto least = static_cast<double>(facts.least_pixels);
  const auto width = static_cast<double>(image.width), height = static_cast<double>(image.height);
  double columns = std::nearbyint(width / square), lines = std::nearbyint(height / square);
  if (columns * lines * square * square > most) {
    const double shrink = std::sqrt(height * width / most);
    columns = std::max(1.0, std::floor(width / shrink / square));
    lines = std::max(1.0, std::floor(height / shrink / square));
  } else if (columns * lines * square * square < least) {
    const double grow = std::sqrt(least / (height * width));
    columns = std::ceil(width * grow / square);
    lines = std::ceil(height * grow / square);
  }
  const double squares = std::floor(most / square / square);
  double& longer = columns > lines ? columns : lines;
  const double shorter = std::max(1.0, std::min(columns, lines));
  longer = std::min(longer, std::max(1.0, std::floor(squares / shorter)));
  return {static_cast<int64_t>(std::max(1.0, columns)) * facts.square(),
          static_cast<int64_t>(std::max(1.0, lines)) * facts.square()};
}

}  // namespace

ImageSize size_for(ImageSize image, const plan::ImageFacts& facts) {
  if (!facts.keeps_shape) return {facts.size, facts.size};
  if (facts.most_pixels > 0) return size_by_pixels(image, facts);
  const auto most = static_cast<double>(facts.size);
  const auto width = static_cast<double>(image.width), height = static_cast<double>(image.height);
  const double ratio = std::max({height / most, width / most, 1.0});
  const int64_t square = facts.square();
  return {squares_for(std::floor(width / ratio), square) * square,
          squares_for(std::floor(height / ratio), square) * square};
}

plan::ImagePatches patches_of(const Image& image, const plan::ImageFacts& facts) {
  const ImageSize size = size_for({image.width, image.height}, facts);
  const Image sized = resized(image, size.width, size.height, filter_of(facts.resize));
  std::array<Levels, 3> levels;
  for (size_t c = 0; c < 3; ++c) levels[c] = levels_of(facts.mean[c], facts.deviation[c]);
  plan::ImagePatches patches{size.width / facts.patch, {}};
  patches.floats.resize(static_cast<size_t>(3 * size.width * size.height));
  float* to = patches.floats.data();
  for (int64_t line = 0; line < size.height / facts.patch; ++line) {
    for (int64_t column = 0; column < patches.columns; ++column) {
      for (size_t c = 0; c < 3; ++c) {
        for (int64_t y = line * facts.patch; y < (line + 1) * facts.patch; ++y) {
          const uint8_t* from = sized.rgb.data() + 3 * (y * size.width + column * facts.patch);
          for (int64_t x = 0; x < facts.patch; ++x)
            *to++ = levels[c][from[3 * x + static_cast<int64_t>(c)]];
        }
      }
    }
  }
  return patches;
}

}  // namespace ktx::images

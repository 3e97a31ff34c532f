#include "lib/images/patches.h"

#include <array>
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

}  // namespace

std::vector<float> patches_of(const Image& image, const plan::ImageFacts& facts) {
  const Image sized = resized(image, facts.size, facts.size);
  std::array<Levels, 3> levels;
  for (size_t c = 0; c < 3; ++c) levels[c] = levels_of(facts.mean[c], facts.deviation[c]);
  std::vector<float> patches(static_cast<size_t>(facts.patches() * facts.patch_floats()));
  float* to = patches.data();
  for (int64_t line = 0; line < facts.columns(); ++line) {
    for (int64_t column = 0; column < facts.columns(); ++column) {
      for (size_t c = 0; c < 3; ++c) {
        for (int64_t y = line * facts.patch; y < (line + 1) * facts.patch; ++y) {
          const uint8_t* from = sized.rgb.data() + 3 * (y * facts.size + column * facts.patch);
          for (int64_t x = 0; x < facts.patch; ++x)
            *to++ = levels[c][from[3 * x + static_cast<int64_t>(c)]];
        }
      }
    }
  }
  return patches;
}

}  // namespace ktx::images

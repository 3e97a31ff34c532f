#include "lib/images/decoders.h"

namespace ktx::images {
namespace {

// As Pillow's alpha_composite() rounds; of another formula some values differ by one.
uint8_t on_white(uint32_t value, uint32_t alpha) {
  const uint32_t sum = (value * alpha + 255 * (255 - alpha) + 128) << 7;
  return static_cast<uint8_t>(((sum >> 8) + sum) >> 15);
}

}  // namespace

void lay_on_white(Image& image) {
  const size_t pixels = image.rgb.size() / 4;
  for (size_t i = 0; i < pixels; ++i) {
    const uint8_t alpha = image.rgb[4 * i + 3];
    for (size_t c = 0; c < 3; ++c) {
      image.rgb[3 * i + c] = on_white(image.rgb[4 * i + c], alpha);
    }
  }
  image.rgb.resize(3 * pixels);
}

}  // namespace ktx::images

// How a camera was held, by EXIF (tag 0x112 of the first directory of a TIFF block):
//
//   1 as it is   2 mirrored   3 half a turn   4 upside down, mirrored
//   5 to 8: lines are columns, of the four above
#include <cstdint>
#include <optional>
#include <utility>

#include "lib/images/decoders.h"

namespace ktx::images {
namespace {

constexpr uint32_t kOrientation = 0x112;

// Numbers of a block in its byte order, as long as it has them.
struct Block {
  std::span<const std::byte> bytes;
  bool big = false;

  std::optional<uint32_t> number(uint64_t at, int size) const {
    if (at > bytes.size() || bytes.size() - at < static_cast<uint64_t>(size)) return std::nullopt;
    uint32_t value = 0;
    for (int i = 0; i < size; ++i) {
      const auto byte = static_cast<uint32_t>(bytes[at + static_cast<uint64_t>(i)]);
      value |= byte << (8 * (big ? size - 1 - i : i));
    }
    return value;
  }
};

}  // namespace

int exif_orientation(std::span<const std::byte> exif) {
  Block block{exif};
  const auto order = block.number(0, 2);
  if (order != 0x4949 && order != 0x4d4d) return 1;
  block.big = order == 0x4d4d;
  const auto directory = block.number(4, 4);
  const auto count = directory ? block.number(*directory, 2) : std::nullopt;
  for (uint32_t i = 0; count && i < *count; ++i) {
    const uint64_t entry = uint64_t{*directory} + 2 + uint64_t{12} * i;
    const auto tag = block.number(entry, 2);
    if (!tag) return 1;
    if (*tag != kOrientation) continue;
    const uint32_t value = block.number(entry + 8, 2).value_or(1);
    return value >= 1 && value <= 8 ? static_cast<int>(value) : 1;
  }
  return 1;
}

Image oriented(Image image, int orientation) {
  if (orientation <= 1 || orientation > 8) return image;
  const bool turned = orientation >= 5;
  const bool mirrored =
      orientation == 2 || orientation == 3 || orientation == 6 || orientation == 7;
  const bool upside = orientation == 3 || orientation == 4 || orientation == 7 || orientation == 8;
  Image out{turned ? image.height : image.width, turned ? image.width : image.height,
            std::vector<uint8_t>(image.rgb.size())};
  uint8_t* to = out.rgb.data();
  if (image.rgb.empty()) return out;
  for (int64_t y = 0; y < out.height; ++y) {
    for (int64_t x = 0; x < out.width; ++x, to += 3) {
      const int64_t across = mirrored ? out.width - 1 - x : x;
      const int64_t down = upside ? out.height - 1 - y : y;
      const int64_t at = turned ? across * image.width + down : down * image.width + across;
      for (int c = 0; c < 3; ++c) to[c] = image.rgb[static_cast<size_t>(3 * at + c)];
    }
  }
  return out;
}

}  // namespace ktx::images

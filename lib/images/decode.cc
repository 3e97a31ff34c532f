#include "lib/images/decode.h"

#include <fmt/format.h>

#include <cstring>
#include <string_view>
#include <utility>

#include "lib/images/decoders.h"
#include "lib/support/strings.h"

namespace ktx::images {
namespace {

// What a file is, by its first bytes.
struct Format {
  std::string_view name;
  std::string_view magic;
  Result<Decoded> (*decode)(std::span<const std::byte>, const ImageLimits&, ImagePart);  // or null
};
constexpr Format kFormats[] = {
    {"PNG", "\x89PNG\r\n\x1a\n", decode_png},
    {"JPEG", "\xff\xd8\xff", decode_jpeg},
    {"GIF", "GIF8", nullptr},
    {"WebP", "RIFF", decode_webp},
    {"BMP", "BM", nullptr},
    {"TIFF", "II*", nullptr},
    {"TIFF", "MM", nullptr},
};

}  // namespace

Status check_size(int64_t width, int64_t height, const ImageLimits& limits) {
  const bool fits = width > 0 && height > 0 && width <= limits.side && height <= limits.side &&
                    width * height <= limits.pixels;
  if (fits) return {};
  return Error{fmt::format("the image has {} x {} pixels, expected at most {} in all and {} a side",
                           width, height, limits.pixels, limits.side)};
}

Result<Image> decode_image(std::span<const std::byte> bytes, const ImageLimits& limits,
                           ImagePart part) {
  if (bytes.empty()) return Error{"the image is empty"};
  if (bytes.size() > limits.bytes) {
    return Error{fmt::format("the image has {}, expected at most {}", human_bytes(bytes.size()),
                             human_bytes(limits.bytes))};
  }
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  for (const Format& format : kFormats) {
    if (!text.starts_with(format.magic)) continue;
    if (!format.decode) {
      return Error{fmt::format("the image is {}; convert it to PNG, JPEG or WebP", format.name)};
    }
    Result<Decoded> decoded = format.decode(bytes, limits, part);
    if (!decoded) return Error{fmt::format("{}: {}", format.name, decoded.error().message)};
    return oriented(std::move(decoded->image), decoded->orientation);
  }
  return Error{"these bytes are no image that is known; PNG, JPEG and WebP are"};
}

}  // namespace ktx::images

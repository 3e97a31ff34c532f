#include "lib/images/decoders.h"

#ifdef KTX_WEBP
#include <webp/decode.h>

#include <string_view>

#endif

namespace ktx::images {

#ifdef KTX_WEBP
namespace {

// The data of the first chunk EXIF, some of which begin as in a JPEG. A file is "RIFF", its size,
// "WEBP", and chunks: four letters, a size, the data, a byte more where that is odd.
std::span<const std::byte> exif_of(std::span<const std::byte> file) {
  constexpr size_t kHeader = 12, kChunk = 8;
  constexpr std::string_view kName = "EXIF", kPrefix{"Exif\0\0", 6};
  const auto text = [&](size_t at, size_t size) {
    return std::string_view(reinterpret_cast<const char*>(file.data()) + at, size);
  };
  for (size_t at = kHeader; at + kChunk <= file.size();) {
    uint64_t size = 0;
    for (size_t i = 0; i < 4; ++i) size |= static_cast<uint64_t>(file[at + 4 + i]) << (8 * i);
    const size_t data = at + kChunk;
    if (size > file.size() - data) break;
    if (text(at, 4) == kName) {
      const auto length = static_cast<size_t>(size);
      const size_t skipped = text(data, length).starts_with(kPrefix) ? kPrefix.size() : 0;
      return file.subspan(data + skipped, length - skipped);
    }
    at = data + static_cast<size_t>(size + size % 2);
  }
  return {};
}

}  // namespace

Result<Decoded> decode_webp(std::span<const std::byte> bytes, const ImageLimits& limits,
                            ImagePart part) {
  const auto* const data = reinterpret_cast<const uint8_t*>(bytes.data());
  WebPBitstreamFeatures features = {};
  const VP8StatusCode status = WebPGetFeatures(data, bytes.size(), &features);
  if (status != VP8_STATUS_OK) return Error{"damaged, or no WebP"};
  KTX_TRY(check_size(features.width, features.height, limits));
  if (features.has_animation) {
    return Error{"it is animated; send one of its pictures, as PNG or JPEG"};
  }
  Decoded out;
  out.image.width = features.width;
  out.image.height = features.height;
  out.orientation = exif_orientation(exif_of(bytes));
  if (part == ImagePart::Header) return out;
  const int pixel_bytes = features.has_alpha ? 4 : 3;
  out.image.rgb.resize(static_cast<size_t>(pixel_bytes * out.image.width * out.image.height));
  const auto decode = features.has_alpha ? WebPDecodeRGBAInto : WebPDecodeRGBInto;
  const bool decoded = decode(data, bytes.size(), out.image.rgb.data(), out.image.rgb.size(),
                              pixel_bytes * features.width) != nullptr;
  if (!decoded) return Error{"damaged: its pixels cannot be decoded"};
  if (features.has_alpha) lay_on_white(out.image);
  return out;
}

#else

Result<Decoded> decode_webp(std::span<const std::byte>, const ImageLimits&, ImagePart) {
  return Error{
      "this ktx-run was built without libwebp; build it with libwebp-dev (docs/building.md)"};
}

#endif

}  // namespace ktx::images

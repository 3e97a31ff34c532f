// The decoders of decode.h, and what they share. Private to this folder.
#pragma once

#include <cstddef>
#include <span>

#include "lib/images/decode.h"

namespace ktx::images {

// An image, and how EXIF says that it is to be turned (1 to 8; 1: as it is).
struct Decoded {
  Image image;
  int orientation = 1;
};

Result<Decoded> decode_png(std::span<const std::byte> bytes, const ImageLimits& limits,
                           ImagePart part);
Result<Decoded> decode_webp(std::span<const std::byte> bytes, const ImageLimits& limits,
                            ImagePart part);
Result<Decoded> decode_jpeg(std::span<const std::byte> bytes, const ImageLimits& limits,
                            ImagePart part);

// The orientation in a block of EXIF, from its byte order on; 1 where it has none or is damaged.
int exif_orientation(std::span<const std::byte> exif);
// One without pixels gets its size alone.
Image oriented(Image image, int orientation);

// `rgb` holds red, green, blue and alpha on entry, and what is seen on white on return: as
// processors of transformers have it from 5.24 on.
void lay_on_white(Image& image);

}  // namespace ktx::images

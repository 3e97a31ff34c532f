// Decodes the file of an image: PNG by libpng, JPEG by libjpeg-turbo, WebP by libwebp.
//
//   Image image = KTX_TRY(decode_image(bytes));   // messages name no file
//
// Safe for untrusted bytes: their number, and the pixels that the header promises, are compared
// with the limits before one is decoded. All decoders stand behind this header, so that a process
// without rights has them all (decoder_process.h).
//
// As Pillow converts to RGB: 16 bits become the upper 8, grey has three equal channels, CMYK is
// that of Adobe. But what is transparent is laid on white. What EXIF says of the orientation is
// applied. Profiles of colours are not, and of an animated PNG there is the first picture.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "lib/images/image.h"
#include "lib/support/result.h"

namespace ktx::images {

struct ImageLimits {
  uint64_t bytes = 64 << 20;
  int64_t pixels = 64 << 20;
  int64_t side = 32768;
};

// `Header` gives the size without pixels: that of the whole image, if the rest of the file is
// sound.
enum class ImagePart : uint32_t { All, Header };

Result<Image> decode_image(std::span<const std::byte> bytes, const ImageLimits& limits = {},
                           ImagePart part = ImagePart::All);

// Fails where an image of that size is above the limits.
Status check_size(int64_t width, int64_t height, const ImageLimits& limits);

}  // namespace ktx::images

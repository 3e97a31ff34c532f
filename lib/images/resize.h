// Brings an image to a size by linear interpolation, as Pillow's resize(BILINEAR) does it: where it
// gets smaller, each pixel is a mean of all below it, weighted by a triangle (antialias).
//
// The bits are Pillow's: weights in 22 bits behind the point, columns first, rounded to 8 bits
// between the two passes.
#pragma once

#include <cstdint>

#include "lib/images/image.h"

namespace ktx::images {

// Both sizes at least 1.
Image resized(const Image& image, int64_t width, int64_t height);

}  // namespace ktx::images

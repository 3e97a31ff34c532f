// Brings an image to a size as Pillow's resize() does it, by linear or cubic interpolation: where
// it gets smaller, each pixel is a mean of all below it, weighted by the filter (antialias).
//
// The bits are those of Pillow up to 12: weights in 22 bits behind the point, columns first,
// rounded to 8 bits between the two passes. (Pillow 13 takes lines first where that is cheaper.)
#pragma once

#include <cstdint>
#include <string_view>

#include "lib/images/image.h"

namespace ktx::images {

enum class Filter { Bilinear, Bicubic };
Filter filter_of(std::string_view name);  // ImageFacts::resize

// Both sizes at least 1.
Image resized(const Image& image, int64_t width, int64_t height, Filter filter);

}  // namespace ktx::images

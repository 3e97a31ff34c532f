// What a tower reads of an image: brought to its size, normalised, and cut into patches.
//
//   plan::ImagePatches patches = patches_of(image, plan.facts.image);
//
// Patches stand line by line; each is patch * patch reds, then greens, then blues, as the kernel of
// a convolution over them is stored: at most facts.patches() rows of facts.patch_floats().
//
// An image that keeps its shape becomes smaller where a side is above facts.size, and both its
// sides then become the next multiples of a square's, as Pixtral's processor has it. A side of
// which nothing would be left has one square, where that processor fails.
//
// With facts.most_pixels its sides become the nearest multiples of a square's, and where these have
// more pixels or fewer than facts.least_pixels, both shrink or grow, as Qwen's processor has it.
// That fails for an image which is more than 200 times as long as wide; here the longer side is
// cut to what facts.most_pixels leaves.
#pragma once

#include "lib/images/image.h"
#include "lib/plan/plan_facts.h"

namespace ktx::images {

struct ImageSize {
  int64_t width = 0;
  int64_t height = 0;
};
// To which an image of that size is brought.
ImageSize size_for(ImageSize image, const plan::ImageFacts& facts);

plan::ImagePatches patches_of(const Image& image, const plan::ImageFacts& facts);

}  // namespace ktx::images

// What a tower reads of an image: brought to its size, normalised, and cut into patches.
//
//   std::vector<float> patches = patches_of(image, plan.facts.image);
//
// Patches stand line by line; each is patch * patch reds, then greens, then blues, as the kernel of
// a convolution over them is stored: facts.patches() rows of facts.patch_floats().
#pragma once

#include <vector>

#include "lib/images/image.h"
#include "lib/plan/plan_facts.h"

namespace ktx::images {

std::vector<float> patches_of(const Image& image, const plan::ImageFacts& facts);

}  // namespace ktx::images

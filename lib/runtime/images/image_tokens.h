// The tokens of an image in a text.
//
//   add_image(image, facts, line_end, ids, runs);    // behind what ids hold
//
// An image is one run of tokens, or, where the model's texts have something between its lines (the
// ids `line_end`, of ImageFacts::line_end), one for each line.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "lib/plan/plan_facts.h"
#include "lib/runtime/engine/engine.h"
#include "lib/runtime/images/image_reader.h"

namespace ktx::runtime {

// The runs' rows are those of `image`.
void add_image(const ReadImage& image, const plan::ImageFacts& facts,
               std::span<const int32_t> line_end, std::vector<int32_t>& ids,
               std::vector<ImageTokens>& runs);

}  // namespace ktx::runtime

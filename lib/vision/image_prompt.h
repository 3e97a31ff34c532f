// A prompt with images: marks in its text become the tokens of images.
//
//   ImagePrompt prompt = KTX_TRY(with_images(tokenizer, facts.image, text, images));
//   session.show_images(prompt.images);   session.set_prompt(prompt.ids)
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "lib/plan/plan_facts.h"
#include "lib/runtime/images/image_reader.h"
#include "lib/support/result.h"
#include "lib/text/text_spans.h"
#include "lib/text/tokenizer/tokenizer.h"

namespace ktx::vision {

struct ImagePrompt {
  std::vector<int32_t> ids;
  std::vector<runtime::ImageTokens> images;
};

// The text has a mark (ImageFacts::mark) for each image, in their order, but those that stand in
// what others wrote; or none at all, then the images come first. Without images marks are text.
Result<ImagePrompt> with_images(const text::Tokenizer& tokenizer, const plan::ImageFacts& facts,
                                text::MarkedText prompt,
                                std::span<const runtime::ReadImage> images);

}  // namespace ktx::vision

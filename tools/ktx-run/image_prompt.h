// A prompt with images: files become rows of the model, and marks in the text become their tokens.
//
//   std::vector<runtime::ReadImage> images = KTX_TRY(read_images(files, model, path, flags));
//   ImagePrompt prompt = KTX_TRY(with_images(model, text, images));
//   session.show_images(prompt.images);   session.set_prompt(prompt.ids)
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "lib/runtime/images/image_reader.h"
#include "lib/support/result.h"
#include "tools/ktx-run/loaded_model.h"

namespace ktx::tools {

// Messages begin with the file's name.
Result<std::vector<runtime::ReadImage>> read_images(const std::vector<std::string>& files,
                                                    const LoadedModel& model,
                                                    const std::string& plan,
                                                    const EngineFlags& flags);

struct ImagePrompt {
  std::vector<int32_t> ids;
  std::vector<runtime::ImageTokens> images;  // rows are those of `images` given
};

// The text has a mark (ImageFacts::mark) for each image, in their order, but those that stand in
// what others wrote; or none at all, then the images come first.
Result<ImagePrompt> with_images(const LoadedModel& model, text::MarkedText prompt,
                                std::span<const runtime::ReadImage> images);

}  // namespace ktx::tools

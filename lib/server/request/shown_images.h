// The images of a prompt, from the files of a request to tokens of its text.
//
//   vision::ImagePrompt prompt = KTX_TRY(show_images(model, text, files, shown, asker));
//
// First the headers of the files say how many tokens it has. What is too long for the context,
// above the limit of its key or the memory for rows is refused by that, before an image is decoded.
#pragma once

#include <cstddef>
#include <span>

#include "lib/server/http/api_error.h"
#include "lib/server/models/served_model.h"
#include "lib/server/request/image_asker.h"
#include "lib/server/request/request_images.h"
#include "lib/text/text_spans.h"
#include "lib/vision/image_prompt.h"

namespace ktx::server {

// `shown`: which files the text shows, in their order; at least one. It may take seconds, and those
// of one asker together are at most kMaxImages. Where tokens are only counted, the result has no
// images, and ids of them that mean nothing.
ApiResult<vision::ImagePrompt> show_images(const ServedModel& model, const text::MarkedText& prompt,
                                           const RequestImages& images,
                                           std::span<const size_t> shown, ImageAsker& asker);

}  // namespace ktx::server

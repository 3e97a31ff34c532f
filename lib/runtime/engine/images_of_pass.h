// The images of a text in one pass: which tokens are theirs, and their rows in the batch.
//
//   ImagesOfPass images = KTX_TRY(ImagesOfPass::find(item.images, start, count, row_width));
//   const ImageTokens* image = images.of(start + t);   // null: a token of the vocabulary
//   put_image_row(image, start + t, row, row_width, batch);
//   put_axes(images.axes(start + t), row, batch);
//
// A token of an image sees all of it, so that a pass may not end within one, unless it is causal.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "lib/plan/plan_reader.h"
#include "lib/runtime/engine/batch.h"
#include "lib/runtime/engine/engine.h"
#include "lib/support/result.h"

namespace ktx::runtime {

// Fails where the plan takes no images.
Status takes_images(const plan::PlanView& plan, const Batch& batch);

// Whether a text has images: only their tokens have ids below 0.
bool has_images(std::span<const int32_t> tokens);

// Fails where they are not in rising order, or have fewer rows than tokens.
Status check_images(std::span<const ImageTokens> images, int64_t row_width);

// Whether a pass that ends before token `end` of the text ends within an image that sees ahead.
inline bool cuts(const ImageTokens& image, int64_t end) {
  return !image.causal && image.first < end && end < image.end();
}

class ImagesOfPass {
 public:
  // `images` are of the text, in rising order; the pass has its tokens [start, start + count).
  static Result<ImagesOfPass> find(std::span<const ImageTokens> images, int64_t start,
                                   int64_t count, int64_t row_width);
  // The image that has this token of the text, or null. Tokens must rise from call to call.
  const ImageTokens* of(int64_t token);
  // The positions of that token (TokenAxis). Those of a text are alike; an image's tokens have the
  // time of its beginning, and the text goes on behind the longer side of its grid.
  std::array<int32_t, kTokenAxes> axes(int64_t token) const;

 private:
  explicit ImagesOfPass(std::span<const ImageTokens> images) : rest_(images) {}
  std::span<const ImageTokens> rest_;
  int64_t spared_ = 0;  // tokens of images before these without a position of their own
};

// Writes row `row` of the batch's axes; nothing where the plan does not read them.
void put_axes(const std::array<int32_t, kTokenAxes>& axes, int64_t row, Batch& batch);

// Where a pass that begins at token `start` and has room for `count` tokens has to end, so that it
// ends within no image: at most start + count; `start` where the image at its beginning is longer.
int64_t end_outside_images(std::span<const ImageTokens> images, int64_t start, int64_t count);

// Token `token` of the text is row `row` of the batch. `image` may be null; its rows have `width`
// floats.
void put_image_row(const ImageTokens* image, int64_t token, int64_t row, int64_t width,
                   Batch& batch);

}  // namespace ktx::runtime

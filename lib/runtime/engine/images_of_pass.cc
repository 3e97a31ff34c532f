#include "lib/runtime/engine/images_of_pass.h"

#include <fmt/format.h>

#include <algorithm>

namespace ktx::runtime {

Status takes_images(const plan::PlanView& plan, const Batch& batch) {
  if (plan.facts.takes_images && !batch.given_row.empty()) return {};
  return Error{
      "the plan takes no images; compile the model with its projector: ktx-compile MODEL.gguf "
      "--mmproj PROJECTOR.gguf"};
}

bool has_images(std::span<const int32_t> tokens) {
  return std::ranges::any_of(tokens, [](int32_t id) { return id < 0; });
}

Status check_images(std::span<const ImageTokens> images, int64_t row_width) {
  int64_t end = 0;
  for (const ImageTokens& image : images) {
    const int64_t floats = image.rows ? std::ssize(*image.rows) : 0;
    if (image.first < end || image.count < 1 || image.first_row < 0 ||
        floats < (image.first_row + image.count) * row_width) {
      return Error{
          fmt::format("an image of {} tokens at {} with {} floats from row {} on, of {} each",
                      image.count, image.first, floats, image.first_row, row_width)};
    }
    if (image.columns < 0 || (image.columns > 0 && image.count % image.columns != 0)) {
      return Error{fmt::format("an image of {} tokens in lines of {}", image.count, image.columns)};
    }
    end = image.end();
  }
  return {};
}

Result<ImagesOfPass> ImagesOfPass::find(std::span<const ImageTokens> images, int64_t start,
                                        int64_t count, int64_t row_width) {
  KTX_TRY(check_images(images, row_width));
  for (const ImageTokens& image : images) {
    if (cuts(image, start + count)) {
      return Error{fmt::format("a step that ends at token {}, within the image from {} to {}",
                               start + count, image.first, image.end())};
    }
  }
  return ImagesOfPass(images);
}

const ImageTokens* ImagesOfPass::of(int64_t token) {
  while (!rest_.empty() && rest_[0].end() <= token) {
    const ImageTokens& image = rest_[0];
    if (image.columns > 0) {
      spared_ += image.count - std::max(image.columns, image.count / image.columns);
    }
    rest_ = rest_.subspan(1);
  }
  return !rest_.empty() && rest_[0].first <= token ? &rest_[0] : nullptr;
}

std::array<int32_t, kTokenAxes> ImagesOfPass::axes(int64_t token) const {
  const bool within = !rest_.empty() && rest_[0].first <= token && rest_[0].columns > 0;
  const auto time = static_cast<int32_t>((within ? rest_[0].first : token) - spared_);
  if (!within) return {time, time, time};
  const int64_t place = token - rest_[0].first, columns = rest_[0].columns;
  return {time, time + static_cast<int32_t>(place / columns),
          time + static_cast<int32_t>(place % columns)};
}

void put_axes(const std::array<int32_t, kTokenAxes>& axes, int64_t row, Batch& batch) {
  if (batch.axes[0].empty()) return;
  for (size_t axis = 0; axis < axes.size(); ++axis) {
    batch.axes[axis][static_cast<size_t>(row)] = axes[axis];
  }
}

int64_t end_outside_images(std::span<const ImageTokens> images, int64_t start, int64_t count) {
  const int64_t end = start + count;
  for (const ImageTokens& image : images) {
    if (cuts(image, end)) return std::max(start, image.first);
  }
  return end;
}

void put_image_row(const ImageTokens* image, int64_t token, int64_t row, int64_t width,
                   Batch& batch) {
  const auto at = static_cast<size_t>(row);
  const bool ahead = image && !image->causal;
  batch.sees_ahead = batch.sees_ahead || ahead;
  batch.given_row[at] = image ? static_cast<int32_t>(row) : -1;
  batch.text_end[at] = static_cast<int32_t>(ahead ? image->end() - 1 : token);
  if (!image) return;
  std::copy_n(image->rows->begin() + (image->first_row + token - image->first) * width, width,
              batch.hidden.begin() + row * width);
}

}  // namespace ktx::runtime

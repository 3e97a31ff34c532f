#include "lib/server/request/shown_images.h"

#include <fmt/format.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "lib/server/request/scheduler_refusal.h"

namespace ktx::server {
namespace {

// Whether images that are still to be looked at are wanted.
ApiStatus still_wanted(const ImageAsker& asker) {
  if (asker.gone) return ApiError{503, "the client is gone", "", ""};
  if (asker.draining && asker.draining()) {
    return ApiError{503, "the server is shutting down", "", "shutdown", 5};
  }
  if (asker.end && std::chrono::steady_clock::now() >= *asker.end) {
    return ApiError{503, "the images took all the time of a request; send fewer", "", "timeout", 5};
  }
  return {};
}

// What measure() or look() make of each file.
ApiResult<std::vector<runtime::ReadImage>> each(
    const ServedModel& model, const RequestImages& images, std::span<const size_t> shown,
    const ImageAsker& asker,
    Result<runtime::ReadImage> (vision::Viewer::*see)(std::span<const std::byte>,
                                                      const vision::ImageUser&)) {
  const vision::ImageUser user = {asker.owner, asker.share,
                                  [&] { return still_wanted(asker).ok(); }};
  std::vector<runtime::ReadImage> out;
  for (const size_t index : shown) {
    const RequestImages::File& file = images.files()[index];
    KTX_TRY(still_wanted(asker));
    Result<runtime::ReadImage> seen =
        (model.viewer.get()->*see)(std::as_bytes(std::span(file.bytes)), user);
    if (!seen) {
      KTX_TRY(still_wanted(asker));
      return bad_place(file.where, "has no image that can be read: " + seen.error().message);
    }
    out.push_back(seen.take());
  }
  return out;
}

int64_t tokens_of(const std::vector<runtime::ReadImage>& images) {
  int64_t tokens = 0;
  for (const runtime::ReadImage& image : images) tokens += image.tokens;
  return tokens;
}

ApiResult<vision::ImagePrompt> encode(const ServedModel& model, const text::MarkedText& prompt,
                                      const std::vector<runtime::ReadImage>& images) {
  Result<vision::ImagePrompt> shown =
      vision::with_images(*model.tokenizer, model.facts().image, prompt, images);
  if (!shown) return ApiError{400, shown.error().message, "messages", ""};
  return shown.take();
}

}  // namespace

ApiResult<vision::ImagePrompt> show_images(const ServedModel& model, const text::MarkedText& prompt,
                                           const RequestImages& images,
                                           std::span<const size_t> shown, ImageAsker& asker) {
  asker.images += shown.size();
  if (asker.images > kMaxImages) {
    return ApiError{400,
                    fmt::format("the request has more than {} images in all its prompts; send them "
                                "in several requests",
                                kMaxImages),
                    "", ""};
  }
  const std::vector<runtime::ReadImage> measured =
      KTX_TRY(each(model, images, shown, asker, &vision::Viewer::measure));
  vision::ImagePrompt counted = KTX_TRY(encode(model, prompt, measured));
  if (asker.counts_only) {
    counted.images.clear();
    return counted;
  }
  const int64_t tokens = tokens_of(measured);
  if (const auto refused = model.scheduler->too_long(std::ssize(counted.ids))) {
    return to_api_error(*refused);
  }
  const std::shared_ptr<void> held = model.viewer->hold_rows(asker.share.key, tokens);
  if (!held) {
    return ApiError{429,
                    "the images of requests that run or wait take all the memory that there is for "
                    "them; try again later",
                    "", "queue_full", 2};
  }
  if (asker.pay) KTX_TRY(asker.pay(tokens));  // last: what is refused costs nothing
  std::vector<runtime::ReadImage> seen =
      KTX_TRY(each(model, images, shown, asker, &vision::Viewer::look));
  for (runtime::ReadImage& image : seen) image = vision::with_hold(std::move(image), held);
  return encode(model, prompt, seen);
}

}  // namespace ktx::server

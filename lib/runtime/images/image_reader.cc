#include "lib/runtime/images/image_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace ktx::runtime {
namespace {

constexpr int32_t kFirstId = -2;  // -1 is no token

// The first patch of each square, line by line.
std::vector<int32_t> squares_of(const plan::ImageFacts& facts) {
  std::vector<int32_t> first;
  for (int64_t line = 0; line < facts.columns(); line += facts.pool) {
    for (int64_t column = 0; column < facts.columns(); column += facts.pool) {
      first.push_back(static_cast<int32_t>(line * facts.columns() + column));
    }
  }
  return first;
}

}  // namespace

Result<std::unique_ptr<ImageReader>> ImageReader::open(const std::string& path,
                                                       EngineOptions options) {
  options.tower = true;
  options.ctx.reset();
  options.largest_ctx = false;
  options.max_batch = 1;
  options.chunk_tokens.reset();
  options.kv_budget_bytes.reset();
  options.lora.clear();
  std::unique_ptr<Engine> engine = KTX_TRY(Engine::open(path, options));
  if (!engine->plan().facts.is_tower()) {
    return Error{fmt::format("{}: section 'tower' reads no images; compile again", path)};
  }
  return std::unique_ptr<ImageReader>(new ImageReader(std::move(engine)));
}

Result<ReadImage> ImageReader::read(std::span<const float> patches) {
  if (std::ssize(patches) != facts().patches() * facts().patch_floats()) {
    return Error{fmt::format("an image of {} floats, expected {} patches of {}", patches.size(),
                             facts().patches(), facts().patch_floats())};
  }
  const Digest256 digest = KTX_TRY(sha256(std::as_bytes(patches)));
  const auto next = kFirstId - static_cast<int32_t>(ids_.size());
  const int32_t id = ids_.try_emplace(digest, next).first->second;
  const auto known = std::ranges::find(kept_, id, &ReadImage::id);
  if (known != kept_.end()) {
    kept_.splice(kept_.begin(), kept_, known);
    return kept_.front();
  }
  std::vector<float> rows = KTX_TRY(compute(patches));
  kept_.push_front(
      {id, facts().tokens(), std::make_shared<const std::vector<float>>(std::move(rows))});
  if (kept_.size() > kKept) kept_.pop_back();
  return kept_.front();
}

Result<std::vector<float>> ImageReader::compute(std::span<const float> patches) {
  const std::vector<int32_t> tokens(static_cast<size_t>(facts().patches()), 0);
  const std::vector<int32_t> squares = squares_of(facts());
  Sequence sequence = engine_->new_sequence();
  BatchItem item{&sequence, tokens};
  item.hidden = patches;
  item.outputs = squares;
  const Forward done = KTX_TRY(engine_->forward({&item, 1}));
  if (done != Forward::Done) return Error{"there is no room for an image"};
  std::vector<float> rows;
  rows.reserve(squares.size() * static_cast<size_t>(facts().width));
  for (int64_t row = 0; row < engine_->logits_rows(); ++row) {
    KTX_TRY(engine_->fetch_logits(row));
    const std::span<const float> values = engine_->logits(row);
    rows.insert(rows.end(), values.begin(), values.end());
  }
  ++computed_;
  return rows;
}

}  // namespace ktx::runtime

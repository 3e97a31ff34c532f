#include "lib/runtime/images/image_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace ktx::runtime {
namespace {

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

Result<ReadImage> ImageReader::read(std::span<const float> patches, const std::string& owner) {
  if (std::ssize(patches) != facts().patches() * facts().patch_floats()) {
    return Error{fmt::format("an image of {} floats, expected {} patches of {}", patches.size(),
                             facts().patches(), facts().patch_floats())};
  }
  Sha256 hash;
  hash.add(std::as_bytes(std::span(owner)));
  hash.add(std::as_bytes(patches));
  const int32_t id = KTX_TRY(id_of(KTX_TRY(hash.digest())));
  if (const std::optional<ReadImage> known = find(id)) return *known;
  std::vector<float> rows = KTX_TRY(compute(patches));
  const ReadImage image{id, facts().tokens(),
                        std::make_shared<const std::vector<float>>(std::move(rows))};
  keep(image);
  return image;
}

Result<int32_t> ImageReader::id_of(const Digest256& digest) {
  if (const auto found = by_digest_.find(digest); found != by_digest_.end()) {
    known_.splice(known_.begin(), known_, found->second);
    return known_.front().id;
  }
  if (last_id_ == INT32_MIN) return Error{"no more images can be told apart; start again"};
  if (known_.size() == kMostIds) {
    by_digest_.erase(known_.back().digest);
    known_.pop_back();
  }
  known_.push_front({digest, --last_id_});
  by_digest_[digest] = known_.begin();
  return last_id_;
}

std::optional<ReadImage> ImageReader::find(int32_t id) {
  const auto found = std::ranges::find(kept_, id, &ReadImage::id);
  if (found == kept_.end()) return std::nullopt;
  kept_.splice(kept_.begin(), kept_, found);
  return kept_.front();
}

void ImageReader::keep(const ReadImage& image) {
  const auto bytes_of = [](const ReadImage& each) { return each.rows->size() * sizeof(float); };
  kept_.push_front(image);
  kept_bytes_ += bytes_of(image);
  while (kept_bytes_ > kKeptBytes && kept_.size() > 1) {
    kept_bytes_ -= bytes_of(kept_.back());
    kept_.pop_back();
  }
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

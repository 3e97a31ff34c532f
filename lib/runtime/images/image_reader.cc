#include "lib/runtime/images/image_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "lib/runtime/engine/fit.h"

namespace ktx::runtime {
namespace {

int64_t patches_in(const plan::ImagePatches& image, const plan::ImageFacts& facts) {
  return std::ssize(image.floats) / facts.patch_floats();
}

// The first patch of each square, line by line.
std::vector<int32_t> squares_of(const plan::ImagePatches& image, const plan::ImageFacts& facts) {
  std::vector<int32_t> first;
  for (int64_t line = 0; line < patches_in(image, facts) / image.columns; line += facts.pool) {
    for (int64_t column = 0; column < image.columns; column += facts.pool) {
      first.push_back(static_cast<int32_t>(line * image.columns + column));
    }
  }
  return first;
}

// Whole lines of whole squares, as many as the tower reads.
Status check_grid(const plan::ImagePatches& image, const plan::ImageFacts& facts) {
  const int64_t patches = patches_in(image, facts), columns = image.columns;
  const bool whole = columns > 0 && columns % facts.pool == 0 && patches > 0 &&
                     patches % (columns * facts.pool) == 0 &&
                     patches * facts.patch_floats() == std::ssize(image.floats);
  const bool fits =
      whole && patches <= facts.patches() &&
      (facts.keeps_shape ? columns <= facts.columns() && patches / columns <= facts.columns()
                         : columns == facts.columns() && patches == facts.patches());
  if (fits) return {};
  const std::string expected =
      facts.most_pixels > 0 ? fmt::format("at most {} patches", facts.patches())
                            : fmt::format("{}{} lines of {}", facts.keeps_shape ? "at most " : "",
                                          facts.columns(), facts.columns());
  return Error{
      fmt::format("an image of {} floats in lines of {} patches, expected {} in squares of {} x {}",
                  image.floats.size(), columns, expected, facts.pool, facts.pool)};
}

// The digest of the owner, the patches and the grid in which they stand.
Result<Digest256> digest_of(const plan::ImagePatches& image, const std::string& owner) {
  Sha256 sum;
  sum.add(std::as_bytes(std::span(owner)));
  sum.add(std::as_bytes(std::span(image.floats)));
  sum.add(std::as_bytes(std::span(&image.columns, 1)));
  return sum.digest();
}

}  // namespace

Result<std::unique_ptr<ImageReader>> ImageReader::open(const std::string& path,
                                                       EngineOptions options, int64_t kept_rows) {
  std::unique_ptr<Engine> engine = KTX_TRY(Engine::open(path, tower_options(std::move(options))));
  if (!engine->plan().facts.is_tower()) {
    return Error{fmt::format("{}: section 'tower' reads no images; compile again", path)};
  }
  std::unique_ptr<ImageReader> reader(new ImageReader(std::move(engine)));
  const int64_t row_bytes = reader->facts().row_width() * static_cast<int64_t>(sizeof(float));
  reader->most_bytes_ =
      std::clamp(static_cast<uint64_t>(kept_rows * row_bytes), kLeastBytes, kMostBytes);
  return reader;
}

Result<ReadImage> ImageReader::read(const plan::ImagePatches& patches, const std::string& owner) {
  KTX_TRY(check_grid(patches, facts()));
  const int32_t id = KTX_TRY(id_of(KTX_TRY(digest_of(patches, owner))));
  if (const std::optional<ReadImage> known = find(id)) return *known;
  std::vector<float> rows = KTX_TRY(compute(patches));
  const int64_t tokens = std::ssize(rows) / facts().row_width();
  const ReadImage image{id, tokens, std::make_shared<const std::vector<float>>(std::move(rows)),
                        patches.columns / facts().pool};
  keep(image);
  return image;
}

Result<int32_t> ImageReader::id_of(const Digest256& digest) {
  const std::lock_guard lock(mutex_);
  if (const auto found = by_digest_.find(digest); found != by_digest_.end()) {
    known_.splice(known_.begin(), known_, found->second);
    return known_.front().id;
  }
  if (last_id_ == INT32_MIN) return Error{"more images than can be distinguished; start again"};
  if (known_.size() == kMostIds) {
    by_digest_.erase(known_.back().digest);
    known_.pop_back();
  }
  known_.push_front({digest, --last_id_});
  by_digest_[digest] = known_.begin();
  return last_id_;
}

std::optional<ReadImage> ImageReader::find(int32_t id) {
  const std::lock_guard lock(mutex_);
  const auto found = std::ranges::find(kept_, id, &ReadImage::id);
  if (found == kept_.end()) return std::nullopt;
  kept_.splice(kept_.begin(), kept_, found);
  return kept_.front();
}

void ImageReader::keep(const ReadImage& image) {
  const auto bytes_of = [](const ReadImage& each) { return each.rows->size() * sizeof(float); };
  const std::lock_guard lock(mutex_);
  kept_.push_front(image);
  kept_bytes_ += bytes_of(image);
  while (kept_bytes_ > most_bytes_ && kept_.size() > 1) {
    kept_bytes_ -= bytes_of(kept_.back());
    kept_.pop_back();
  }
}

Result<std::vector<float>> ImageReader::compute(const plan::ImagePatches& patches) {
  const std::vector<int32_t> tokens(static_cast<size_t>(patches_in(patches, facts())), 0);
  const std::vector<int32_t> squares = squares_of(patches, facts());
  Sequence sequence = engine_->new_sequence();
  BatchItem item{&sequence, tokens};
  item.hidden = patches.floats;
  item.columns = patches.columns;
  item.outputs = squares;
  const Forward done = KTX_TRY(engine_->forward({&item, 1}));
  if (done != Forward::Done) return Error{"there is no room for an image"};
  std::vector<float> rows;
  rows.reserve(squares.size() * static_cast<size_t>(facts().row_width()));
  for (int64_t row = 0; row < engine_->logits_rows(); ++row) {
    KTX_TRY(engine_->fetch_logits(row));
    const std::span<const float> values = engine_->logits(row);
    rows.insert(rows.end(), values.begin(), values.end());
  }
  ++computed_;
  return rows;
}

}  // namespace ktx::runtime

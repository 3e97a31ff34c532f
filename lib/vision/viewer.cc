#include "lib/vision/viewer.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "lib/images/patches.h"
#include "lib/support/mapped_file.h"
#include "lib/support/timer.h"

namespace ktx::vision {
namespace {

// Most that requests have that wait or run; a context full of images has room anyway.
constexpr int64_t kRowBytes = int64_t{1} << 30;
constexpr int32_t kMeasured = INT32_MIN;  // the id of one that was not looked at

int64_t bytes_of_row(const plan::ImageFacts& facts) {
  return facts.row_width() * static_cast<int64_t>(sizeof(float));
}

Error left() {
  return Error{"the client that asked for the image has left"};
}

}  // namespace

Result<std::unique_ptr<Viewer>> Viewer::open(const std::string& plan,
                                             runtime::EngineOptions options,
                                             const runtime::Engine& model,
                                             std::shared_ptr<images::DecoderProcess> decoder) {
  if (!model.plan().facts.takes_images) {
    return Error{fmt::format(
        "{}: takes no images; compile the model with its projector (--mmproj FILE)", plan)};
  }
  // The model has touched little of its memory by now.
  options.reserved_bytes = model.memory().working_bytes();
  std::unique_ptr<runtime::ImageReader> reader =
      KTX_TRY(runtime::ImageReader::open(plan, std::move(options), model.ctx()));
  const int64_t context = model.ctx() * bytes_of_row(reader->facts());
  return std::unique_ptr<Viewer>(
      new Viewer(std::move(reader), std::move(decoder), std::max(kRowBytes, context)));
}

Result<Digest256> Viewer::digest_of(std::span<const std::byte> file,
                                    const std::string& owner) const {
  Sha256 hash;
  hash.add(std::as_bytes(std::span(owner)));
  hash.add(file);
  return hash.digest();
}

std::optional<runtime::ReadImage> Viewer::find(const Digest256& file) {
  std::optional<int32_t> id;
  {
    const std::lock_guard lock(mutex_);
    if (const auto known = ids_.find(file); known != ids_.end()) id = known->second;
  }
  return id ? reader_->find(*id) : std::nullopt;
}

Result<images::Image> Viewer::decode(std::span<const std::byte> file, images::ImagePart part) {
  Result<images::Image> image = decoder_->decode(file, {}, part);
  if (!image) {
    const std::lock_guard lock(mutex_);
    ++figures_.refused;
  }
  return image;
}

Result<runtime::ReadImage> Viewer::read(const plan::ImagePatches& patches, const std::string& owner,
                                        double decode_seconds) {
  const int64_t before = reader_->computed();
  const Timer timer;
  Result<runtime::ReadImage> read = reader_->read(patches, owner);
  const std::lock_guard lock(mutex_);
  figures_.computed = reader_->computed();
  if (figures_.computed > before) figures_.seconds += decode_seconds + timer.seconds();
  return read;
}

Result<runtime::ReadImage> Viewer::look(std::span<const std::byte> file, const ImageUser& user) {
  const Digest256 digest = KTX_TRY(digest_of(file, user.owner));
  {
    const std::lock_guard lock(mutex_);
    ++figures_.seen;
  }
  if (const std::optional<runtime::ReadImage> known = find(digest)) return *known;
  const auto room = pixels_.wait(user.share, user.waits);
  if (!room) return left();
  // Another request may have brought it meanwhile.
  if (const std::optional<runtime::ReadImage> known = find(digest)) return *known;
  const Timer timer;
  const plan::ImagePatches patches =
      images::patches_of(KTX_TRY(decode(file, images::ImagePart::All)), facts());
  const double decode_seconds = timer.seconds();
  const auto turn = tower_.wait(user.share, user.waits);
  if (!turn) return left();
  const runtime::ReadImage image = KTX_TRY(read(patches, user.owner, decode_seconds));
  const std::lock_guard lock(mutex_);
  if (ids_.size() >= kMostFiles) ids_.clear();  // they are found by their pixels again
  ids_[digest] = image.id;
  return image;
}

Result<runtime::ReadImage> Viewer::measure(std::span<const std::byte> file, const ImageUser& user) {
  if (const auto known = find(KTX_TRY(digest_of(file, user.owner)))) {
    return runtime::ReadImage{known->id, known->tokens, nullptr, known->columns};
  }
  const auto turn = headers_.wait(user.share, user.waits);
  if (!turn) return left();
  const images::Image image = KTX_TRY(decode(file, images::ImagePart::Header));
  const images::ImageSize size = images::size_for({image.width, image.height}, facts());
  const int64_t columns = size.width / facts().square();
  return runtime::ReadImage{kMeasured, columns * (size.height / facts().square()), nullptr,
                            columns};
}

std::shared_ptr<void> Viewer::hold_rows(const std::string& key, int64_t tokens) {
  return rows_.hold(key, tokens * bytes_of_row(facts()));
}

Result<runtime::ReadImage> Viewer::look_at(const std::string& path) {
  const MappedFile mapped = KTX_TRY(MappedFile::open(path));
  Result<runtime::ReadImage> read = look(mapped.bytes());
  if (!read) return Error{fmt::format("{}: {}", path, read.error().message)};
  return read;
}

ViewerFigures Viewer::figures() const {
  const std::lock_guard lock(mutex_);
  ViewerFigures figures = figures_;
  figures.waiting = headers_.waiting() + pixels_.waiting() + tower_.waiting();
  figures.row_bytes = rows_.taken();
  return figures;
}

runtime::ReadImage with_hold(runtime::ReadImage image, std::shared_ptr<void> held) {
  struct Both {
    std::shared_ptr<const std::vector<float>> rows;
    std::shared_ptr<void> held;
  };
  const auto both = std::make_shared<const Both>(Both{std::move(image.rows), std::move(held)});
  image.rows = {both, both->rows.get()};
  return image;
}

}  // namespace ktx::vision

#include "lib/vision/viewer.h"

#include <fmt/format.h>

#include <utility>

#include "lib/images/patches.h"
#include "lib/support/mapped_file.h"
#include "lib/support/timer.h"

namespace ktx::vision {

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
      KTX_TRY(runtime::ImageReader::open(plan, std::move(options)));
  return std::unique_ptr<Viewer>(new Viewer(std::move(reader), std::move(decoder)));
}

std::optional<runtime::ReadImage> Viewer::find(const Digest256& file) {
  const std::lock_guard lock(mutex_);
  const auto known = ids_.find(file);
  return known == ids_.end() ? std::nullopt : reader_->find(known->second);
}

Result<runtime::ReadImage> Viewer::look(std::span<const std::byte> file, const std::string& owner) {
  const Timer timer;
  Sha256 hash;
  hash.add(std::as_bytes(std::span(owner)));
  hash.add(file);
  const Digest256 digest = KTX_TRY(hash.digest());
  const std::optional<runtime::ReadImage> known = find(digest);
  {
    const std::lock_guard lock(figures_mutex_);
    ++figures_.seen;
  }
  if (known) return *known;
  const Result<images::Image> image = decoder_->decode(file);
  if (!image) {
    const std::lock_guard lock(figures_mutex_);
    ++figures_.refused;
    return image.error();
  }
  const plan::ImagePatches patches = images::patches_of(*image, facts());
  Result<runtime::ReadImage> read = Error{"not read"};
  int64_t computed = 0;
  {
    const std::lock_guard lock(mutex_);
    const int64_t before = reader_->computed();
    read = reader_->read(patches, owner);
    computed = reader_->computed() - before;
    if (ids_.size() >= kMostFiles) ids_.clear();  // they are found by their pixels again
    if (read) ids_[digest] = read->id;
  }
  const std::lock_guard lock(figures_mutex_);
  figures_.computed += computed;
  if (computed > 0) figures_.seconds += timer.seconds();
  return read;
}

Result<runtime::ReadImage> Viewer::look_at(const std::string& path) {
  const MappedFile mapped = KTX_TRY(MappedFile::open(path));
  Result<runtime::ReadImage> read = look(mapped.bytes());
  if (!read) return Error{fmt::format("{}: {}", path, read.error().message)};
  return read;
}

ViewerFigures Viewer::figures() const {
  const std::lock_guard lock(figures_mutex_);
  return figures_;
}

}  // namespace ktx::vision

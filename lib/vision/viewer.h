// What a model sees: files of images become its rows.
//
//   auto viewer = KTX_TRY(Viewer::open(plan, options, *engine, decoder));
//   runtime::ReadImage image = KTX_TRY(viewer->look(bytes, user));
//
// A file is decoded in a process of its own (lib/images/decoder_process.h), its pixels become rows
// by the plan's tower. Both beside the model's engine: all functions may be called from any threads
// while it computes, and those that look for several users take turns (scheduler/turn_line.h):
//
//   measure()   a few headers at a time, milliseconds
//   look()      three images have pixels, two of a key at most; the tower reads one of these
//
// So one key's images delay the first of another by the one that is being read. How much memory
// pixels take is thereby limited; rows that are kept for requests are counted by hold_rows().
//
// An image that was seen lately is found again by the SHA-256 of its file, and takes no turn. What
// one owner sees is not found by another one: the time of an answer would show what others have
// sent.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>

#include "lib/images/decoder_process.h"
#include "lib/runtime/images/image_reader.h"
#include "lib/runtime/scheduler/key_quota.h"
#include "lib/runtime/scheduler/turn_line.h"
#include "lib/support/result.h"

namespace ktx::vision {

struct ViewerFigures {
  int64_t seen = 0;       // images of requests
  int64_t computed = 0;   // of these, not found among those that were seen before
  int64_t refused = 0;    // files that are no image, damaged or too large
  int64_t waiting = 0;    // images that wait for their turn now
  int64_t row_bytes = 0;  // of hold_rows(), now
  double seconds = 0;     // of those that were computed: to decode and to read them
};

// For whom an image is looked at.
struct ImageUser {
  std::string owner;              // who finds it again
  runtime::ShareOf share;         // whose turn it takes
  std::function<bool()> waits{};  // false: it has left, and its turn is for nothing; null: it waits
};

class Viewer {
 public:
  // `options`: as the model's own engine has them; without a pool the tower has threads of its own.
  static Result<std::unique_ptr<Viewer>> open(const std::string& plan,
                                              runtime::EngineOptions options,
                                              const runtime::Engine& model,
                                              std::shared_ptr<images::DecoderProcess> decoder);

  // Messages name no file.
  Result<runtime::ReadImage> look(std::span<const std::byte> file, const ImageUser& user = {});
  // Messages begin with the path.
  Result<runtime::ReadImage> look_at(const std::string& path);
  // What look() will give, if the whole file is sound, without rows: by the header of the file.
  Result<runtime::ReadImage> measure(std::span<const std::byte> file, const ImageUser& user = {});

  // Memory for the rows of so many tokens, for as long as a copy is there, which the viewer
  // outlives. Null: requests have too much of it.
  std::shared_ptr<void> hold_rows(const std::string& key, int64_t tokens);

  const plan::ImageFacts& facts() const { return reader_->facts(); }
  ViewerFigures figures() const;

 private:
  Viewer(std::unique_ptr<runtime::ImageReader> reader,
         std::shared_ptr<images::DecoderProcess> decoder, int64_t row_bytes)
      : reader_(std::move(reader)), decoder_(std::move(decoder)), rows_(row_bytes) {}
  Result<Digest256> digest_of(std::span<const std::byte> file, const std::string& owner) const;
  std::optional<runtime::ReadImage> find(const Digest256& file);
  Result<images::Image> decode(std::span<const std::byte> file, images::ImagePart part);
  Result<runtime::ReadImage> read(const plan::ImagePatches& patches, const std::string& owner,
                                  double decode_seconds);

  static constexpr size_t kMostFiles = 4096;
  const std::unique_ptr<runtime::ImageReader> reader_;
  const std::shared_ptr<images::DecoderProcess> decoder_;
  runtime::KeyQuota rows_;                     // bytes
  runtime::TurnLine headers_{4, 2};            // at processes that read one
  runtime::TurnLine pixels_{3, 2}, tower_{1};  // at memory for pixels, and at the tower
  mutable std::mutex mutex_;                   // of what follows
  std::map<Digest256, int32_t> ids_;           // of files
  ViewerFigures figures_;
};

// The image, whose rows hold what hold_rows() gave.
runtime::ReadImage with_hold(runtime::ReadImage image, std::shared_ptr<void> held);

}  // namespace ktx::vision

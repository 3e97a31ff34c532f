// What a model sees: files of images become its rows.
//
//   auto viewer = KTX_TRY(Viewer::open(plan, options, *engine, decoder));
//   runtime::ReadImage image = KTX_TRY(viewer->look(bytes));
//
// A file is decoded in a process of its own (lib/images/decoder_process.h), its pixels become rows
// by the plan's tower. Both beside the model's engine: look() may be called from any threads while
// it computes. The tower reads one image at a time.
//
// An image that was seen lately is found again by the SHA-256 of its file. What one owner sees is
// not found by another one: the time of an answer would show what others have sent.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>

#include "lib/images/decoder_process.h"
#include "lib/runtime/images/image_reader.h"
#include "lib/support/result.h"

namespace ktx::vision {

struct ViewerFigures {
  int64_t seen = 0;      // images that were asked for
  int64_t computed = 0;  // of these, not found among those that were seen before
  int64_t refused = 0;   // files that are no image, damaged or too large
  double seconds = 0;    // of those that were computed, from the file to its rows
};

class Viewer {
 public:
  // `options`: as the model's own engine has them; without a pool the tower has threads of its own.
  static Result<std::unique_ptr<Viewer>> open(const std::string& plan,
                                              runtime::EngineOptions options,
                                              const runtime::Engine& model,
                                              std::shared_ptr<images::DecoderProcess> decoder);

  // Messages name no file.
  Result<runtime::ReadImage> look(std::span<const std::byte> file, const std::string& owner = {});
  // Messages begin with the path.
  Result<runtime::ReadImage> look_at(const std::string& path);

  const plan::ImageFacts& facts() const { return reader_->facts(); }
  ViewerFigures figures() const;

 private:
  Viewer(std::unique_ptr<runtime::ImageReader> reader,
         std::shared_ptr<images::DecoderProcess> decoder)
      : reader_(std::move(reader)), decoder_(std::move(decoder)) {}
  std::optional<runtime::ReadImage> find(const Digest256& file);

  static constexpr size_t kMostFiles = 4096;
  mutable std::mutex mutex_;  // of what follows
  std::unique_ptr<runtime::ImageReader> reader_;
  std::map<Digest256, int32_t> ids_;  // of files
  mutable std::mutex figures_mutex_;
  ViewerFigures figures_;
  const std::shared_ptr<images::DecoderProcess> decoder_;
};

}  // namespace ktx::vision

// Reads images for a model: the plan's tower makes rows of their patches.
//
//   auto reader = KTX_TRY(ImageReader::open("m.ktxplan", options));
//   ReadImage image = KTX_TRY(reader->read(patches));     // images::patches_of()
//   // image.tokens tokens of the text have the id image.id, and these rows (ImageTokens)
//
// The id is below 0 and distinguishes images wherever texts are compared by their tokens: other
// patches never share one, and the same patches do: the SHA-256 of the patches decides.
// Ids are of this reader alone. It remembers those of some 65,000 images: one that comes again
// behind so many others is a new one, which costs the computation of its text. The rows of the
// latest images are kept, so that a second question about one does not compute it again.
//
// read() is called by one thread at a time, find() by any meanwhile. The pool of threads may be
// another engine's (EngineOptions::pool).
#pragma once

#include <atomic>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lib/runtime/engine/engine.h"
#include "lib/support/result.h"
#include "lib/support/sha256.h"

namespace ktx::runtime {

struct ReadImage {
  int32_t id = 0;
  int64_t tokens = 0;
  std::shared_ptr<const std::vector<float>> rows;  // tokens * ImageFacts::row_width()
  int64_t columns = 0;                             // tokens of a line
};

class ImageReader {
 public:
  // `options`: as the model's own engine has them; its tower's context and batch are its own.
  // `kept_rows`: so many are kept, in 256 MiB to 1 GiB; the model's context is
  // a sensible number, as a text may be full of images.
  static Result<std::unique_ptr<ImageReader>> open(const std::string& path, EngineOptions options,
                                                   int64_t kept_rows = 0);

  const plan::ImageFacts& facts() const { return engine_->plan().facts.image; }
  // The same image of another owner has an id of its own.
  Result<ReadImage> read(const plan::ImagePatches& patches, const std::string& owner = {});
  // One whose rows are kept; nothing: they are not.
  std::optional<ReadImage> find(int32_t id);
  int64_t computed() const { return computed_; }  // images, and not found among the kept ones

 private:
  static constexpr uint64_t kLeastBytes = 256 << 20, kMostBytes = 1 << 30;
  static constexpr size_t kMostIds = 1 << 16;
  explicit ImageReader(std::unique_ptr<Engine> engine) : engine_(std::move(engine)) {}
  Result<std::vector<float>> compute(const plan::ImagePatches& patches);

  Result<int32_t> id_of(const Digest256& digest);
  void keep(const ReadImage& image);

  std::unique_ptr<Engine> engine_;
  std::atomic<int64_t> computed_ = 0;
  std::mutex mutex_;  // of what follows
  struct Known {
    Digest256 digest;
    int32_t id = 0;
  };
  std::list<Known> known_;  // the latest first
  std::map<Digest256, std::list<Known>::iterator> by_digest_;
  int32_t last_id_ = -1;       // which is no token
  std::list<ReadImage> kept_;  // the latest first
  uint64_t kept_bytes_ = 0, most_bytes_ = kLeastBytes;
};

}  // namespace ktx::runtime

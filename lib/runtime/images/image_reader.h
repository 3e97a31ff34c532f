// Reads images for a model: the plan's tower makes rows of their patches.
//
//   auto reader = KTX_TRY(ImageReader::open("m.ktxplan", options));
//   ReadImage image = KTX_TRY(reader->read(patches));     // images::patches_of()
//   // image.tokens tokens of the text have the id image.id, and these rows (ImageTokens)
//
// The id is below 0 and distinguishes images wherever texts are compared by their tokens: the same
// patches have the same id, others never, as it comes from their SHA-256. Ids are of this reader
// alone. The latest images are kept, so that a second question about one computes it no more.
//
// Not thread-safe; the pool of threads may be another engine's (EngineOptions::pool).
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <memory>
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
  std::shared_ptr<const std::vector<float>> rows;  // tokens * ImageFacts::width
};

class ImageReader {
 public:
  // `options`: as the model's own engine has them; its tower's context and batch are its own.
  static Result<std::unique_ptr<ImageReader>> open(const std::string& path, EngineOptions options);

  const plan::ImageFacts& facts() const { return engine_->plan().facts.image; }
  // facts().patches() rows of facts().patch_floats().
  Result<ReadImage> read(std::span<const float> patches);
  int64_t computed() const { return computed_; }  // images, and not found among the kept ones

 private:
  static constexpr size_t kKept = 16;
  explicit ImageReader(std::unique_ptr<Engine> engine) : engine_(std::move(engine)) {}
  Result<std::vector<float>> compute(std::span<const float> patches);

  std::unique_ptr<Engine> engine_;
  std::map<Digest256, int32_t> ids_;  // of all images so far
  std::list<ReadImage> kept_;         // the latest first
  int64_t computed_ = 0;
};

}  // namespace ktx::runtime

// The shapes that GPU graphs are captured for.
//
//   GpuBuckets buckets(/*max_batch=*/6, /*ctx=*/10000);
//   buckets.token_buckets()      1 2 4 8       a decode step of 3 sequences runs as 4
//   buckets.position_buckets()   1024 4096 10048   ... with 700 tokens before it as 1024
//
// Unused rows are padding: position and logits row are -1. The bound of positions determines
// how attention is split over the GPU (split-KV), so a short text does not pay for the longest.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "lib/runtime/gpu/gpu.h"

namespace ktx::runtime {

class GpuBuckets {
 public:
  GpuBuckets() = default;
  GpuBuckets(int64_t max_batch, int64_t ctx);

  const std::vector<int64_t>& token_buckets() const { return tokens_; }
  const std::vector<int64_t>& position_buckets() const { return positions_; }
  int64_t largest_batch() const { return tokens_.empty() ? 0 : tokens_.back(); }

  // All shapes, by index.
  int count() const { return static_cast<int>(tokens_.size() * positions_.size()); }
  GpuShape shape(int index) const;
  // The bucket of a step of `tokens` tokens, one of each sequence, each of which wants
  // its logits; nothing when it is larger than every bucket.
  std::optional<int> find(int64_t tokens, int64_t max_positions) const;
  // The bound of positions for a step that runs without a graph.
  int64_t position_bound(int64_t max_positions) const;

 private:
  std::vector<int64_t> tokens_, positions_;  // rising
};

// The shape with room for the padding of the largest bucket.
plan::RunShape gpu_run_shape(plan::RunShape shape);

}  // namespace ktx::runtime

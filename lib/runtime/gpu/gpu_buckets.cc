#include "lib/runtime/gpu/gpu_buckets.h"

#include <algorithm>

#include "lib/runtime/cache/kv_cache.h"

namespace ktx::runtime {
namespace {

constexpr int64_t kLargestBucket = 64;
constexpr int64_t kFirstPositions = 1024;
constexpr int64_t kPositionsGrowth = 4;

}  // namespace

GpuBuckets::GpuBuckets(int64_t max_batch, int64_t ctx) {
  for (int64_t tokens = 1; tokens <= kLargestBucket; tokens *= 2) {
    tokens_.push_back(tokens);
    if (tokens >= max_batch) break;
  }
  const int64_t most = blocks_for(ctx) * KvCache::kBlockTokens;
  for (int64_t bound = kFirstPositions; bound < most; bound *= kPositionsGrowth) {
    positions_.push_back(bound);
  }
  positions_.push_back(most);
}

GpuShape GpuBuckets::shape(int index) const {
  const auto n = static_cast<int>(positions_.size());
  GpuShape shape;
  shape.tokens = shape.outputs = tokens_[index / n];
  shape.max_positions = positions_[index % n];
  shape.one_token_each = true;
  return shape;
}

std::optional<int> GpuBuckets::find(int64_t tokens, int64_t max_positions) const {
  const auto t = std::lower_bound(tokens_.begin(), tokens_.end(), tokens);
  const auto p = std::lower_bound(positions_.begin(), positions_.end(), max_positions);
  if (tokens < 1 || t == tokens_.end() || p == positions_.end()) return std::nullopt;
  return static_cast<int>((t - tokens_.begin()) * static_cast<int64_t>(positions_.size()) +
                          (p - positions_.begin()));
}

int64_t GpuBuckets::position_bound(int64_t max_positions) const {
  const auto p = std::lower_bound(positions_.begin(), positions_.end(), max_positions);
  return p == positions_.end() ? max_positions : *p;
}

plan::RunShape gpu_run_shape(plan::RunShape shape) {
  const int64_t largest = GpuBuckets(shape.max_batch, shape.ctx).largest_batch();
  shape.step_tokens = std::max(shape.step_tokens, largest);
  shape.step_outputs = std::max(shape.step_outputs, largest);
  return shape;
}

}  // namespace ktx::runtime

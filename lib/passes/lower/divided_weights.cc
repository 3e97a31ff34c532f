#include "lib/passes/lower/divided_weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

namespace ktx::passes {

using program::Blob;
using program::BlobId;
using program::kAbsent;
using program::Step;

namespace {

int64_t rows_of_slice(const Blob& blob, const TensorSlice& slice) {
  const bool all = slice.row_count < 0;
  return all ? blob.rows * blob.matrices / static_cast<int64_t>(blob.sources.size())
             : slice.row_count;
}
// Rows [first, first + count) of the blob.
std::vector<TensorSlice> rows_of(const Blob& blob, int64_t first, int64_t count) {
  std::vector<TensorSlice> slices;
  int64_t at = 0;
  for (const TensorSlice& slice : blob.sources) {
    const int64_t rows = rows_of_slice(blob, slice);
    const int64_t begin = std::max(first, at), end = std::min(first + count, at + rows);
    if (begin < end) slices.push_back({slice.tensor, slice.first_row + begin - at, end - begin});
    at += rows;
  }
  return slices;
}

}  // namespace

BlobId DividedWeights::of_gpu(BlobId whole, size_t gpu, How how) {
  if (whole == kAbsent || (how == How::Whole && gpu == 0)) return whole;
  const auto [found, added] = parts_.try_emplace({whole, gpu, how}, 0);
  if (!added) return found->second;
  Blob part = program_.blobs[whole];
  const auto n = static_cast<int64_t>(team_.size()), g = static_cast<int64_t>(gpu);
  const bool vector = part.rows * part.matrices == 1;
  if (how == How::Columns || (how == How::Rows && vector)) {
    // Rows of a tensor are n shorter ones each, of which this is number g.
    part.cols /= n;
    for (TensorSlice& slice : part.sources) {
      slice = {slice.tensor, slice.first_row * n + g, rows_of_slice(program_.blobs[whole], slice)};
    }
    if (!part.constant.empty()) {
      part.constant.assign(part.constant.begin() + g * part.cols,
                           part.constant.begin() + (g + 1) * part.cols);
    }
  } else if (how == How::Rows) {
    part.rows /= n;
    part.sources = rows_of(program_.blobs[whole], g * part.rows, part.rows);
  }
  part.device = team_[gpu];
  const std::string_view base = std::string_view(part.name).substr(0, part.name.rfind('@'));
  part.name = how == How::Whole
                  ? fmt::format("{}@{}", base, part.device)
                  : fmt::format("{}/{}{}of{}@{}", base, how == How::Rows ? "" : "columns", gpu + 1,
                                n, part.device);
  program_.blobs.push_back(std::move(part));
  return found->second = static_cast<BlobId>(program_.blobs.size()) - 1;
}

void DividedWeights::drop_unused() {
  std::vector<BlobId> ids(program_.blobs.size(), kAbsent);
  for (const Step& step : program_.steps) {
    for (const BlobId blob : step.weights) {
      if (blob != kAbsent) ids[blob] = 0;
    }
  }
  std::vector<Blob> used;
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] == kAbsent) continue;
    ids[i] = static_cast<BlobId>(used.size());
    used.push_back(std::move(program_.blobs[i]));
  }
  program_.blobs = std::move(used);
  for (Step& step : program_.steps) {
    for (BlobId& blob : step.weights) {
      if (blob != kAbsent) blob = ids[blob];
    }
  }
}

int32_t DividedWeights::slot_of(int32_t slot, size_t gpu) {
  std::vector<int32_t>& own = slots_[slot];
  if (own.empty()) {
    program_.kv_slots[slot].kv_heads /= static_cast<int32_t>(team_.size());
    own.push_back(slot);
    for (size_t other = 1; other < team_.size(); ++other) {
      program::KvSlot copy = program_.kv_slots[slot];
      copy.device = team_[other];
      own.push_back(static_cast<int32_t>(program_.kv_slots.size()));
      program_.kv_slots.push_back(std::move(copy));
    }
  }
  return own[gpu];
}

}  // namespace ktx::passes

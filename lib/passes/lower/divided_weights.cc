#include "lib/passes/lower/divided_weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
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

// Rows [first, first + count) of the blob, behind those of `slices`.
void add_rows(const Blob& blob, const Run& run, std::vector<TensorSlice>& slices) {
  int64_t at = 0;
  for (const TensorSlice& slice : blob.sources) {
    const int64_t rows = rows_of_slice(blob, slice);
    const int64_t begin = std::max(run.first, at);
    const int64_t end = std::min(run.first + run.count, at + rows);
    if (begin < end) slices.push_back({slice.tensor, slice.first_row + begin - at, end - begin});
    at += rows;
  }
}

// Elements of a vector: as rows of the longest pieces that all runs are made of.
void take_elements(const Blob& whole, const std::vector<Run>& runs, Blob& part) {
  int64_t piece = 0, elems = 0;
  for (const Run& run : runs) {
    piece = std::gcd(std::gcd(piece, run.first), run.count);
    elems += run.count;
  }
  part.cols = piece;
  part.rows = elems / piece;
  part.sources.clear();
  part.constant.clear();
  for (const Run& run : runs) {
    for (const TensorSlice& slice : whole.sources) {
      const int64_t first = slice.first_row * whole.cols + run.first;
      part.sources.push_back({slice.tensor, first / piece, run.count / piece});
    }
    if (whole.constant.empty()) continue;
    part.constant.insert(part.constant.end(), whole.constant.begin() + run.first,
                         whole.constant.begin() + run.first + run.count);
  }
}

}  // namespace

DividedWeights::DividedWeights(program::Program& program, const std::vector<std::string>& team)
    : program_(program), team_(team) {
  for (const Step& step : program.steps) {
    next_state_ = std::max(next_state_, kept_by(step.attrs).state + 1);
  }
}

template <class Cut>
BlobId DividedWeights::part(BlobId whole, size_t gpu, How how, const Cut& cut, int64_t piece) {
  if (whole == kAbsent || (how == How::Copy && gpu == 0)) return whole;
  const auto [found, added] = parts_.try_emplace({whole, gpu, how, piece}, 0);
  if (!added) return found->second;
  Blob part = program_.blobs[whole];
  cut(program_.blobs[whole], part);
  part.device = team_[gpu];
  const std::string_view base = std::string_view(part.name).substr(0, part.name.rfind('@'));
  part.name = how == How::Copy ? fmt::format("{}@{}", base, part.device)
              : how == How::Columns
                  ? fmt::format("{}/columns{}of{}@{}", base, piece + 1,
                                program_.blobs[whole].cols / part.cols, part.device)
                  : fmt::format("{}/{}of{}@{}", base, gpu + 1, gpus(), part.device);
  program_.blobs.push_back(std::move(part));
  return found->second = static_cast<BlobId>(program_.blobs.size()) - 1;
}

BlobId DividedWeights::copy(BlobId whole, size_t gpu) {
  return part(whole, gpu, How::Copy, [](const Blob&, Blob&) {});
}

// Rows of a tensor are so many shorter ones each, of which this is one.
BlobId DividedWeights::columns(BlobId whole, size_t gpu, const Run& run) {
  const int64_t piece = run.first / run.count;
  const auto cut = [&](const Blob& all, Blob& part) {
    const int64_t pieces = all.cols / run.count;
    part.cols = run.count;
    for (TensorSlice& slice : part.sources) {
      slice = {slice.tensor, slice.first_row * pieces + piece, rows_of_slice(all, slice)};
    }
  };
  return part(whole, gpu, How::Columns, cut, piece);
}

BlobId DividedWeights::rows(BlobId whole, size_t gpu, const Division& division) {
  return part(whole, gpu, How::Rows, [&](const Blob& all, Blob& part) {
    const std::vector<Run> runs = division.runs(static_cast<int64_t>(gpu), gpus());
    if (all.rows * all.matrices == 1) return take_elements(all, runs, part);
    part.rows = division.part();
    part.sources.clear();
    for (const Run& run : runs) add_rows(all, run, part.sources);
  });
}

BlobId DividedWeights::matrices(BlobId whole, size_t gpu) {
  return part(whole, gpu, How::Matrices, [&](const Blob& all, Blob& part) {
    part.matrices /= gpus();
    part.sources.clear();
    const int64_t rows = part.matrices * all.rows;
    add_rows(all, {static_cast<int64_t>(gpu) * rows, rows}, part.sources);
  });
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

int32_t DividedWeights::slot(int32_t slot, size_t gpu) {
  std::vector<int32_t>& own = slots_[slot];
  if (own.empty()) {
    int32_t& heads = program_.kv_slots[slot].kv_heads;
    heads = static_cast<int32_t>(heads_of_one(heads, gpus()));
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

int32_t DividedWeights::state(int32_t state, size_t gpu) {
  std::vector<int32_t>& own = states_[state];
  if (own.empty()) {
    own.push_back(state);
    while (own.size() < team_.size()) own.push_back(next_state_++);
  }
  return own[gpu];
}

}  // namespace ktx::passes

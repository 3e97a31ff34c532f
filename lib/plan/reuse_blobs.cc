#include "lib/plan/reuse_blobs.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>
#include <vector>

#include "lib/formats/dtype.h"
#include "lib/plan/chunk_hash.h"
#include "lib/support/strings.h"
#include "lib/support/thread_count.h"
#include "lib/support/thread_pool.h"

namespace ktx::plan {
namespace {

// What packed bytes depend on beside the source's: blobs with the same form of the same rows are
// equal.
using BlobForm = std::tuple<uint16_t, uint16_t, int64_t, int64_t, int64_t,
                            std::vector<std::tuple<uint32_t, int64_t, int64_t>>>;

BlobForm form_of(const BlobRecord& blob, std::span<const SliceRecord> slices) {
  std::vector<std::tuple<uint32_t, int64_t, int64_t>> rows;
  for (const SliceRecord& slice : slices.subspan(blob.first_slice, blob.slice_count)) {
    rows.emplace_back(slice.tensor, slice.first_row, slice.row_count);
  }
  return {blob.dtype, blob.layout, blob.rows, blob.cols, blob.matrices, std::move(rows)};
}

// Packed without rounding, in another layout than the source's.
bool is_packed(const BlobRecord& blob, std::span<const SliceRecord> slices,
               std::span<const GgufTensorRecord> tensors) {
  if (blob.slice_count == 0 || blob.layout == static_cast<uint16_t>(Layout::Rows)) return false;
  return std::ranges::all_of(
      slices.subspan(blob.first_slice, blob.slice_count),
      [&](const SliceRecord& slice) { return tensors[slice.tensor].dtype == blob.dtype; });
}

Error another_model(const PlanFile& old, const std::string& difference) {
  return Error{
      fmt::format("{}: a plan of another model: {}; give a plan of this model, or omit --reuse",
                  printable(old.path()), difference)};
}

Status check_tensors(const PlanFile& old, const PlanContents& contents) {
  const std::vector<GgufTensorRecord>& ours = contents.gguf.tensors;
  const auto theirs = old->gguf_tensors;
  if (ours.size() != theirs.size()) {
    return another_model(old,
                         fmt::format("it has {} tensors, this one {}", theirs.size(), ours.size()));
  }
  const auto text = [](std::string_view name, const GgufTensorRecord& tensor) {
    return fmt::format("'{}' ({}, {} rows of {})", printable(name),
                       ktx::name(static_cast<DType>(tensor.dtype)), tensor.rows, tensor.row_elems);
  };
  for (size_t i = 0; i < ours.size(); ++i) {
    const std::string a = text(contents.strings[ours[i].name], ours[i]);
    const std::string b = text(old->string(theirs[i].name), theirs[i]);
    if (a != b)
      return another_model(old, fmt::format("its tensor {} is {}, this one's {}", i, b, a));
  }
  return {};
}

// A blob that the old plan may have.
struct Candidate {
  uint32_t blob, old;
};

// Whether the sources of the candidates are those that the old plan was made of.
std::vector<bool> compare_sources(const PlanView& old, std::span<const BlobSource> sources,
                                  std::span<const Candidate> candidates, int threads) {
  struct Piece {
    size_t candidate;
    uint64_t number;
  };
  std::vector<BlobRecord> sizes(candidates.size());
  std::vector<Piece> pieces;
  for (size_t i = 0; i < candidates.size(); ++i) {
    sizes[i].size = sources[candidates[i].blob].source_bytes();
    for (uint64_t at = 0; at < sizes[i].size; at += kBlobPieceBytes) {
      pieces.push_back({i, at / kBlobPieceBytes});
    }
  }
  BlobHashes hashes(sizes);
  ThreadPool pool(thread_count(threads));
  pool.for_each(static_cast<int64_t>(pieces.size()), [&](int64_t i, int) {
    const auto& [candidate, number] = pieces[static_cast<size_t>(i)];
    hashes.set(static_cast<uint32_t>(candidate), number,
               hash_source_piece(sources[candidates[candidate].blob].slices, number));
  });
  std::vector<bool> same(candidates.size());
  for (size_t i = 0; i < candidates.size(); ++i) {
    same[i] = hashes.of(static_cast<uint32_t>(i)) == old.source_hashes[candidates[i].old];
  }
  return same;
}

}  // namespace

Result<ReusedBlobs> reuse_blobs(const PlanFile& old, const PlanContents& contents,
                                std::span<BlobSource> sources, int threads) {
  KTX_TRY(check_tensors(old, contents));
  if (old->source_hashes.empty()) {
    return Error{fmt::format(
        "{}: format {}.{} has no hashes of its source, which came with 3.7; leave out --reuse",
        printable(old.path()), kMajor, old->minor)};
  }
  if (!old->facts.merged.empty()) {
    return Error{fmt::format(
        "{}: has an adapter merged into its weights, which are not the model's; leave out --reuse",
        printable(old.path()))};
  }
  std::map<BlobForm, uint32_t> has;
  for (uint32_t i = 0; i < old->blobs.size(); ++i) {
    const BlobRecord& blob = old->blobs[i];
    if (!is_packed(blob, old->slices, old->gguf_tensors)) continue;
    has.emplace(form_of(blob, old->slices), i);
  }
  ReusedBlobs reused;
  std::vector<Candidate> candidates;
  for (uint32_t i = 0; i < contents.blobs.size(); ++i) {
    const BlobRecord& blob = contents.blobs[i];
    if (!is_packed(blob, contents.slices, contents.gguf.tensors)) continue;
    if (contents.merged.contains(i)) continue;
    ++reused.of_count;
    reused.of_bytes += sources[i].source_bytes();
    const auto found = has.find(form_of(blob, contents.slices));
    if (found != has.end()) candidates.push_back({i, found->second});
  }
  const std::vector<bool> same = compare_sources(old.view(), sources, candidates, threads);
  for (size_t i = 0; i < candidates.size(); ++i) {
    if (!same[i]) continue;
    const auto [blob, from] = candidates[i];
    BlobSource& source = sources[blob];
    ++reused.count;
    reused.bytes += source.source_bytes();
    source.packed = old->blob_bytes(from);
    source.packed_hash = old->blobs[from].hash;
    source.source_hash = old->source_hashes[from];
  }
  if (!candidates.empty() && reused.count == 0) {
    return another_model(old, fmt::format("the {} weights that both have in the same layout have "
                                          "other values",
                                          candidates.size()));
  }
  return reused;
}

}  // namespace ktx::plan

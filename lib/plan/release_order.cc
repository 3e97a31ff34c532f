#include "lib/plan/release_order.h"

#include <algorithm>

#include "lib/formats/layout_size.h"
#include "lib/plan/tensor_parts.h"

namespace ktx::plan {
namespace {

// Every layout has a matrix as strips one after the other, each made of the same number of rows.
struct Strips {
  explicit Strips(const BlobRecord& blob)
      : row_bytes(
            static_cast<uint64_t>(*ktx::row_bytes(static_cast<DType>(blob.dtype), blob.cols))),
        matrix_rows(static_cast<uint64_t>(blob.rows)),
        matrix_bytes(blob.size / static_cast<uint64_t>(blob.matrices)) {
    const auto layout = static_cast<Layout>(blob.layout);
    if (layout != Layout::Rows) strip_rows = kPanelRows;
    strip_bytes =
        matrix_bytes / (static_cast<uint64_t>(stored_rows(layout, blob.rows)) / strip_rows);
  }
  uint64_t row_bytes, matrix_rows, matrix_bytes;
  uint64_t strip_rows = 1, strip_bytes;
};

// The end, in the packed blob, of the strip that holds byte source_end - 1 of its slices.
uint64_t packed_end(const BlobRecord& blob, uint64_t source_end) {
  const Strips strips(blob);
  const uint64_t row = (source_end - 1) / strips.row_bytes;
  const uint64_t strip = row % strips.matrix_rows / strips.strip_rows;
  return row / strips.matrix_rows * strips.matrix_bytes + (strip + 1) * strips.strip_bytes;
}

// The end of bytes [begin, end) of the tensor in the plan, as the slice has them; 0: it has none.
uint64_t end_in_plan(const PlanContents& contents, const SliceRecord& slice, uint64_t begin,
                     uint64_t end) {
  const BlobRecord& blob = contents.blobs[slice.blob];
  const GgufTensorRecord& tensor = contents.gguf.tensors[slice.tensor];
  const auto row = static_cast<uint64_t>(*row_bytes(static_cast<DType>(blob.dtype), blob.cols));
  // Parts of rows: one of each row of the tensor.
  const auto apart = row * static_cast<uint64_t>(row_step(tensor, blob.cols));
  const uint64_t first = static_cast<uint64_t>(slice.first_row) * row / apart * apart;
  const uint64_t last = first + static_cast<uint64_t>(slice.row_count) * apart;
  if (end <= first || begin >= last) return 0;
  const uint64_t rows = (std::min(end, last) - first + apart - 1) / apart;
  return blob.offset + packed_end(blob, (static_cast<uint64_t>(slice.blob_row) + rows) * row);
}

void add_tensor(const PlanContents& contents, uint32_t index, std::span<const uint32_t> slices,
                uint64_t piece_bytes, std::vector<ReleasePiece>& pieces) {
  const GgufTensorRecord& tensor = contents.gguf.tensors[index];
  if (is_kept(tensor)) return;
  for (uint64_t at = 0; at < tensor.size; at += piece_bytes) {
    const uint64_t to = std::min(at + piece_bytes, tensor.size);
    uint64_t behind = 0;
    for (const uint32_t s : slices) {
      behind = std::max(behind, end_in_plan(contents, contents.slices[s], at, to));
    }
    KTX_ASSERT(behind > 0);
    pieces.push_back({behind, tensor.shard, tensor.offset + at, tensor.offset + to});
  }
}

}  // namespace

std::vector<SourceGap> source_gaps(const PlanContents& contents) {
  std::vector<SourceGap> gaps;
  std::vector<uint64_t> ends;
  for (const GgufContents::Shard& shard : contents.gguf.shards) ends.push_back(shard.header.size());
  std::vector<GgufTensorRecord> tensors = contents.gguf.tensors;
  std::ranges::sort(tensors, {}, &GgufTensorRecord::offset);
  for (const GgufTensorRecord& tensor : tensors) {
    if (tensor.size == 0) continue;
    uint64_t& end = ends[tensor.shard];
    gaps.push_back({tensor.shard, end, tensor.offset, tensor.name});
    end = std::max(end, tensor.offset + tensor.size);
  }
  for (uint32_t s = 0; s < ends.size(); ++s) {
    gaps.push_back({s, ends[s], std::max(ends[s], contents.gguf.shards[s].file_size), kNone});
  }
  return gaps;
}

std::vector<ReleasePiece> release_order(const PlanContents& contents, uint64_t piece_bytes) {
  std::vector<std::vector<uint32_t>> slices(contents.gguf.tensors.size());
  for (uint32_t s = 0; s < contents.slices.size(); ++s) {
    slices[contents.slices[s].tensor].push_back(s);
  }
  std::vector<ReleasePiece> pieces;
  for (uint32_t t = 0; t < contents.gguf.tensors.size(); ++t) {
    add_tensor(contents, t, slices[t], piece_bytes, pieces);
  }
  for (const SourceGap& gap : source_gaps(contents)) {
    if (gap.begin < gap.end) pieces.push_back({0, gap.shard, gap.begin, gap.end});
  }
  std::ranges::stable_sort(pieces, {}, &ReleasePiece::behind);
  return pieces;
}

uint64_t source_bytes_within(const BlobRecord& blob, uint64_t packed) {
  const Strips strips(blob);
  const uint64_t strip = packed % strips.matrix_bytes / strips.strip_bytes;
  const uint64_t rows = packed / strips.matrix_bytes * strips.matrix_rows +
                        std::min(strip * strips.strip_rows, strips.matrix_rows);
  return rows * strips.row_bytes;
}

}  // namespace ktx::plan

#include "kernels/matmul/marlin_blob.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "kernels/matmul/marlin_layout.h"

namespace ktx::kernels {
namespace {

// Where strip number `strip` of the blob begins among all rows, and how many it has.
struct StripRows {
  int64_t first = 0;
  int64_t count = 0;
};

StripRows rows_of(const MarlinBlob& blob, int64_t strip) {
  const int64_t strips = (blob.rows + kMarlinRows - 1) / kMarlinRows;
  const int64_t in_matrix = strip % strips * kMarlinRows;
  return {strip / strips * blob.rows + in_matrix, std::min(kMarlinRows, blob.rows - in_matrix)};
}

int64_t strip_of_row(const MarlinBlob& blob, int64_t row) {
  const int64_t strips = (blob.rows + kMarlinRows - 1) / kMarlinRows;
  return row / blob.rows * strips + row % blob.rows / kMarlinRows;
}

// Row `row` of the `rows` of the joined slices; slices hold whole rows.
const std::byte* find_row(std::span<const std::span<const std::byte>> slices, int64_t rows,
                          uint64_t row_bytes, int64_t row) {
  // Parts of rows are a slice each, of which there are thousands.
  if (std::ssize(slices) == rows) return slices[static_cast<size_t>(row)].data();
  uint64_t at = static_cast<uint64_t>(row) * row_bytes;
  for (const std::span<const std::byte> slice : slices) {
    if (at < slice.size()) return slice.data() + at;
    at -= slice.size();
  }
  return nullptr;
}

}  // namespace

int64_t marlin_blob_bytes(const MarlinBlob& blob) {
  return marlin_matrix_bytes(blob.dtype, blob.rows, blob.cols) * blob.matrices;
}

void pack_marlin_range(const MarlinBlob& blob, std::span<const std::span<const std::byte>> slices,
                       uint64_t offset, std::span<std::byte> out) {
  const auto row_size = static_cast<uint64_t>(*row_bytes(blob.dtype, blob.cols));
  const auto strip_size = static_cast<uint64_t>(marlin_strip_bytes(blob.dtype, blob.cols));
  for (uint64_t at = 0; at < out.size(); at += strip_size) {
    const StripRows strip = rows_of(blob, static_cast<int64_t>((offset + at) / strip_size));
    std::array<const std::byte*, kMarlinRows> rows{};
    for (int64_t r = 0; r < strip.count; ++r) {
      rows[static_cast<size_t>(r)] =
          find_row(slices, blob.rows * blob.matrices, row_size, strip.first + r);
    }
    marlin_pack_strip(blob.dtype, blob.cols, rows, out.data() + at);
  }
}

bool unpack_marlin_range(const MarlinBlob& blob, std::span<const std::byte> packed, uint64_t offset,
                         std::span<std::byte> out) {
  if (out.empty()) return true;
  const auto row_size = static_cast<uint64_t>(*row_bytes(blob.dtype, blob.cols));
  const auto strip_size = static_cast<uint64_t>(marlin_strip_bytes(blob.dtype, blob.cols));
  const uint64_t end = offset + out.size();
  std::vector<std::byte> strip_rows(row_size * kMarlinRows);
  const int64_t last = strip_of_row(blob, static_cast<int64_t>((end - 1) / row_size));
  bool clean = true;
  for (int64_t s = strip_of_row(blob, static_cast<int64_t>(offset / row_size)); s <= last; ++s) {
    const StripRows strip = rows_of(blob, s);
    std::array<std::byte*, kMarlinRows> rows{};
    for (int64_t r = 0; r < strip.count; ++r) {
      rows[static_cast<size_t>(r)] = strip_rows.data() + static_cast<uint64_t>(r) * row_size;
    }
    clean &= marlin_unpack_strip(blob.dtype, blob.cols,
                                 packed.data() + static_cast<uint64_t>(s) * strip_size,
                                 static_cast<int>(strip.count), rows);
    const uint64_t begin = static_cast<uint64_t>(strip.first) * row_size;
    const uint64_t from = std::max(offset, begin);
    const uint64_t to = std::min(end, begin + static_cast<uint64_t>(strip.count) * row_size);
    std::memcpy(out.data() + (from - offset), strip_rows.data() + (from - begin), to - from);
  }
  return clean;
}

}  // namespace ktx::kernels

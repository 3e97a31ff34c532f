#include "kernels/matmul/panel16.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "kernels/matmul/panel16_floats.h"
#include "kernels/matmul/panel16_words.h"
#include "lib/formats/layout.h"

namespace ktx::kernels {
void pack_panel16(DType dtype, int64_t cols, const std::byte* const (&rows)[kPanelRows],
                  std::byte* panel, Layout layout) {
  if (panel16_float_columns(dtype)) return pack_float_panel(dtype, cols, rows, panel);
  const PanelCut cut = panel_cut(dtype, cols, layout);
  const std::vector<std::byte> zeros(static_cast<size_t>(cut.blocks * cut.block_bytes));
  const std::byte* from[kPanelRows];
  for (int64_t r = 0; r < kPanelRows; ++r) from[r] = rows[r] ? rows[r] : zeros.data();
  for (int64_t b = 0; b < cut.blocks; ++b) {
    std::byte* out = panel + cut.word_place(b);
    const int64_t at = b * cut.block_bytes;
    for (int64_t w = 0; w < cut.words; ++w) {
      const int64_t word = at + cut.first_word + panel_source_word(dtype, w, layout) * kPanelWord;
      for (int64_t r = 0; r < kPanelRows; ++r) {
        std::memcpy(out + r * kPanelWord, from[r] + word, kPanelWord);
      }
      out += kPanelRows * kPanelWord;
    }
    std::byte* rest = panel + cut.rest_place(b);
    for (int64_t r = 0; r < kPanelRows; ++r) {
      for (int64_t i = 0; i < cut.rest_bytes; ++i) *rest++ = from[r][at + cut.rest_begin + i];
    }
  }
}

void unpack_panel16_block(DType dtype, int64_t cols, const std::byte* panel, int64_t r,
                          int64_t block, std::byte* out, Layout layout) {
  if (panel16_float_columns(dtype)) {
    return unpack_float_columns(dtype, cols, panel, r, block, 1, out);
  }
  const PanelCut cut = panel_cut(dtype, cols, layout);
  const std::byte* from = panel + cut.word_place(block) + r * kPanelWord;
  for (int64_t w = 0; w < cut.words; ++w) {
    std::memcpy(out + cut.first_word + panel_source_word(dtype, w, layout) * kPanelWord,
                from + w * kPanelRows * kPanelWord, kPanelWord);
  }
  const std::byte* rest = panel + cut.rest_place(block) + r * cut.rest_bytes;
  for (int64_t i = 0; i < cut.rest_bytes; ++i) out[cut.rest_begin + i] = rest[i];
}

bool unpack_panel16(DType dtype, int64_t cols, const std::byte* panel,
                    std::byte* const (&rows)[kPanelRows], Layout layout) {
  if (panel16_float_columns(dtype)) return unpack_float_panel(dtype, cols, panel, rows);
  const PanelCut cut = panel_cut(dtype, cols, layout);
  const int64_t row_size = cut.blocks * cut.block_bytes;
  std::vector<std::byte> spare;  // rows that are padding
  std::byte* to[kPanelRows];
  for (int64_t r = 0; r < kPanelRows; ++r) {
    to[r] = rows[r];
    if (rows[r]) continue;
    if (spare.empty()) spare.resize(static_cast<size_t>(row_size * kPanelRows));
    to[r] = spare.data() + r * row_size;
  }
  for (int64_t b = 0; b < cut.blocks; ++b) {
    const std::byte* in = panel + cut.word_place(b);
    const int64_t at = b * cut.block_bytes;
    for (int64_t w = 0; w < cut.words; ++w) {
      const int64_t word = at + cut.first_word + panel_source_word(dtype, w, layout) * kPanelWord;
      for (int64_t r = 0; r < kPanelRows; ++r)
        std::memcpy(to[r] + word, in + r * kPanelWord, kPanelWord);
      in += kPanelRows * kPanelWord;
    }
    const std::byte* rest = panel + cut.rest_place(b);
    for (int64_t r = 0; r < kPanelRows; ++r) {
      for (int64_t i = 0; i < cut.rest_bytes; ++i) to[r][at + cut.rest_begin + i] = *rest++;
    }
  }
  return std::ranges::all_of(spare, [](std::byte byte) { return byte == std::byte{0}; });
}

void pack_panel16_range(const Panel16Blob& blob, std::span<const std::span<const std::byte>> slices,
                        uint64_t offset, std::span<std::byte> out) {
  const auto row = static_cast<uint64_t>(*row_bytes(blob.dtype, blob.cols));
  const uint64_t panel_bytes = row * kPanelRows;
  const auto panels = static_cast<uint64_t>(stored_rows(blob.layout, blob.rows) / kPanelRows);
  // Source row -> its bytes; rows come in rising order, so the slice is kept.
  size_t slice = 0;
  uint64_t slice_row = 0;  // of the source, where `slice` begins
  const auto source = [&](uint64_t n) {
    while (n - slice_row >= slices[slice].size() / row) slice_row += slices[slice++].size() / row;
    return slices[slice].data() + (n - slice_row) * row;
  };
  for (uint64_t at = 0; at < out.size(); at += panel_bytes) {
    const uint64_t panel = (offset + at) / panel_bytes;
    const auto first = static_cast<int64_t>(panel % panels) * kPanelRows;
    const std::byte* rows[kPanelRows];
    for (int64_t r = 0; r < kPanelRows; ++r) {
      const uint64_t n =
          panel / panels * static_cast<uint64_t>(blob.rows) + static_cast<uint64_t>(first + r);
      rows[r] = first + r < blob.rows ? source(n) : nullptr;
    }
    pack_panel16(blob.dtype, blob.cols, rows, out.data() + at, blob.layout);
  }
}

bool unpack_panel16_range(const Panel16Blob& blob, std::span<const std::byte> packed,
                          uint64_t offset, std::span<std::byte> out) {
  const auto row = static_cast<uint64_t>(*row_bytes(blob.dtype, blob.cols));
  const uint64_t panel_bytes = row * kPanelRows;
  const auto panels = static_cast<uint64_t>(stored_rows(blob.layout, blob.rows) / kPanelRows);
  const auto rows_each = static_cast<uint64_t>(blob.rows);
  std::vector<std::byte> panel_rows(panel_bytes);
  bool zero = true;
  for (uint64_t at = 0; at < out.size();) {
    const uint64_t n = (offset + at) / row;  // source row that byte `at` belongs to
    const uint64_t matrix = n / rows_each, first = n % rows_each / kPanelRows * kPanelRows;
    std::byte* rows[kPanelRows];
    for (uint64_t r = 0; r < kPanelRows; ++r) {
      rows[r] = first + r < rows_each ? panel_rows.data() + r * row : nullptr;
    }
    const uint64_t panel = matrix * panels + first / kPanelRows;
    zero = unpack_panel16(blob.dtype, blob.cols, packed.data() + panel * panel_bytes, rows,
                          blob.layout) &&
           zero;
    const uint64_t count = std::min<uint64_t>(kPanelRows, rows_each - first);
    const uint64_t begin = offset + at - (matrix * rows_each + first) * row;
    const uint64_t size = std::min<uint64_t>(out.size() - at, count * row - begin);
    std::memcpy(out.data() + at, panel_rows.data() + begin, size);
    at += size;
  }
  return zero;
}

}  // namespace ktx::kernels

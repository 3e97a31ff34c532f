#include "kernels/matmul/panel16.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "kernels/matmul/panel16_floats.h"

namespace ktx::kernels {
namespace {

constexpr int64_t kWord = 4;

// Word w of a panel's block is this word of the GGUF's. Kernels should meet new words in
// rising order, as the hardware fetches them ahead: so high bits stand beside the low
// ones that they are first used with, and the scales of Q2_K, Q3_K and Q6_K before their codes.
// (With the words of the GGUF's order, decode of Q6_K had 8.5 of 22 GB/s on a Zen 4 core.)
int64_t source_word(DType dtype, int64_t w, Layout layout) {
  if (layout == Layout::Panel16Stream) {
    // Q6_K, for each half of the columns: scales of 64, eight times (high, low, other low
    // bits of the same four columns of four groups), scales of the other 64.
    const int64_t half = w / 26, at = w % 26, i = (at - 1) / 3;
    if (at == 0 || at == 25) return 48 + 2 * half + at / 25;
    return (at - 1) % 3 == 0 ? 32 + 8 * half + i : 16 * half + i + ((at - 1) % 3 == 2 ? 8 : 0);
  }
  const auto pairs = [](int64_t at, int64_t high, int64_t low) {
    return at < 16 ? (at % 2 == 0 ? high : low) + at / 2 : low + at - 8;
  };
  if (dtype == DType::Q5_K && w >= 4) return pairs(w - 4, 4, 12);
  if (dtype == DType::Q2_K) return w == 0 ? 20 : w - 1;
  if (dtype == DType::Q3_K) return w < 3 ? 24 + w : pairs(w - 3, 0, 8);
  if (dtype != DType::Q6_K) return w;
  const int64_t half = w / 26, at = w % 26;
  if (at == 0 || at == 25) return 48 + 2 * half + at / 25;
  return pairs(at - 1, 32 + 8 * half, 16 * half);
}

// Where the parts of a dtype's blocks lie in rows and panels.
struct Cut {
  int64_t blocks, block_bytes, words, rest_begin, rest_bytes;
  int64_t first_word;  // in a block, in bytes: words go round the rest

  bool stream;  // every block's rest stands before its words

  Cut(DType dtype, int64_t cols, Layout layout) : stream(layout == Layout::Panel16Stream) {
    const DTypeInfo& type = info(dtype);
    const Panel16Form form = *panel16_form(dtype);
    blocks = cols / type.block_elems;
    block_bytes = type.block_bytes;
    rest_begin = form.rest_begin;
    rest_bytes = form.rest_bytes;
    words = (block_bytes - rest_bytes) / kWord;
    first_word = rest_begin == 0 ? rest_bytes : 0;
  }
  int64_t word_place(int64_t block) const {
    const int64_t rests = stream ? block + 1 : 0;
    return (block * words * kWord + rests * rest_bytes) * kPanelRows;
  }
  int64_t rest_place(int64_t block) const {
    if (stream) return block * block_bytes * kPanelRows;
    return word_place(blocks) + block * rest_bytes * kPanelRows;
  }
};

}  // namespace

void pack_panel16(DType dtype, int64_t cols, const std::byte* const (&rows)[kPanelRows],
                  std::byte* panel, Layout layout) {
  if (panel16_float_columns(dtype)) return pack_float_panel(dtype, cols, rows, panel);
  const Cut cut(dtype, cols, layout);
  const std::vector<std::byte> zeros(static_cast<size_t>(cut.blocks * cut.block_bytes));
  const std::byte* from[kPanelRows];
  for (int64_t r = 0; r < kPanelRows; ++r) from[r] = rows[r] ? rows[r] : zeros.data();
  for (int64_t b = 0; b < cut.blocks; ++b) {
    std::byte* out = panel + cut.word_place(b);
    const int64_t at = b * cut.block_bytes;
    for (int64_t w = 0; w < cut.words; ++w) {
      const int64_t word = at + cut.first_word + source_word(dtype, w, layout) * kWord;
      for (int64_t r = 0; r < kPanelRows; ++r) {
        std::memcpy(out + r * kWord, from[r] + word, kWord);
      }
      out += kPanelRows * kWord;
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
  const Cut cut(dtype, cols, layout);
  const std::byte* from = panel + cut.word_place(block) + r * kWord;
  for (int64_t w = 0; w < cut.words; ++w) {
    std::memcpy(out + cut.first_word + source_word(dtype, w, layout) * kWord,
                from + w * kPanelRows * kWord, kWord);
  }
  const std::byte* rest = panel + cut.rest_place(block) + r * cut.rest_bytes;
  for (int64_t i = 0; i < cut.rest_bytes; ++i) out[cut.rest_begin + i] = rest[i];
}

bool unpack_panel16(DType dtype, int64_t cols, const std::byte* panel,
                    std::byte* const (&rows)[kPanelRows], Layout layout) {
  if (panel16_float_columns(dtype)) return unpack_float_panel(dtype, cols, panel, rows);
  const Cut cut(dtype, cols, layout);
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
      const int64_t word = at + cut.first_word + source_word(dtype, w, layout) * kWord;
      for (int64_t r = 0; r < kPanelRows; ++r) std::memcpy(to[r] + word, in + r * kWord, kWord);
      in += kPanelRows * kWord;
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

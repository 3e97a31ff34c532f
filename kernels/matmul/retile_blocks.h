// The unit of retile.h, once for CPU and GPU: the blocks of rows g and g + 8 at one place of a
// strip. On a GPU the blocks are registers: every index is a constant there.
#pragma once

#include "kernels/matmul/marlin_pack.h"
#include "kernels/matmul/panel16_words.h"

namespace ktx::kernels {

// What the places of a format's words follow from.
template <DType>
struct RetileForm;
#define KTX_PANEL16(id, rest_begin, rest_bytes)                                \
  template <>                                                                  \
  struct RetileForm<DType::id> {                                               \
    using Block = Block##id;                                                   \
    static constexpr Panel16Form kPanel = {DType::id, rest_begin, rest_bytes}; \
  };
#include "lib/formats/panel16.def"
#undef KTX_PANEL16
#define KTX_PANEL16_STREAM(id) || kType == DType::id
template <DType kType>
inline constexpr bool kHasStream = false
#include "lib/formats/panel16_stream.def"
    ;
#undef KTX_PANEL16_STREAM

// Block `block` of row r of a panel.
template <DType kType, Layout kFrom>
KTX_CPU_AND_GPU void load_panel_block(const PanelCut& cut, const std::byte* panel, int r,
                                      int64_t block, std::byte* out) {
  using Block = typename RetileForm<kType>::Block;
  constexpr Panel16Form kForm = RetileForm<kType>::kPanel;
  constexpr int kWords = (int{sizeof(Block)} - kForm.rest_bytes) / int{kPanelWord};
  constexpr int kFirstWord = kForm.rest_begin == 0 ? kForm.rest_bytes : 0;
  const std::byte* words = panel + cut.word_place(block) + r * kPanelWord;
  KTX_GPU_UNROLL
  for (int w = 0; w < kWords; ++w) {
    const uint32_t word = load_aligned32(words + w * kPanelRows * kPanelWord);
    const int64_t to = kFirstWord + panel_source_word(kType, w, kFrom) * kPanelWord;
    std::memcpy(out + to, &word, kPanelWord);
  }
  const std::byte* rest = panel + cut.rest_place(block) + r * kForm.rest_bytes;
  KTX_GPU_UNROLL
  for (int i = 0; i < kForm.rest_bytes; ++i) out[kForm.rest_begin + i] = rest[i];
}

// Blocks number `block` of a strip of so many columns; blocks behind the columns are padding.
template <DType kType, Layout kFrom>
KTX_CPU_AND_GPU void retile_blocks(int64_t cols, const std::byte* panel, int g, int64_t block,
                                   std::byte* strip) {
  using Block = typename RetileForm<kType>::Block;
  constexpr int64_t kElems = MarlinForm<Block>::kElems, kInTile = kMarlinCols / kElems;
  const PanelCut cut(RetileForm<kType>::kPanel, cols / kElems, int64_t{sizeof(Block)}, kFrom);
  alignas(16) std::byte a[sizeof(Block)] = {}, b[sizeof(Block)] = {};
  if (block < cut.blocks) {
    load_panel_block<kType, kFrom>(cut, panel, g, block, a);
    load_panel_block<kType, kFrom>(cut, panel, g + 8, block, b);
  }
  const int64_t tile = block / kInTile, begin = tile * kMarlinCols;
  const int64_t width = padded_cols<Block>(cols) - begin;
  const TilePlanes<Block> planes(static_cast<int>(width < kMarlinCols ? width : kMarlinCols));
  const int64_t tile_bytes = kMarlinRows * kInTile * int64_t{sizeof(Block)};
  pack_blocks<Block>(planes, a, b, g, static_cast<int>(block % kInTile), strip + tile * tile_bytes);
}

// Blocks of a row of a strip, padding included.
template <DType kType>
KTX_CPU_AND_GPU int64_t retile_row_blocks(int64_t cols) {
  using Block = typename RetileForm<kType>::Block;
  return padded_cols<Block>(cols) / MarlinForm<Block>::kElems;
}

}  // namespace ktx::kernels

// Where the words of blocks stand in a panel (panel16.h).
#pragma once

#include <cstdint>

#include "kernels/cpu_and_gpu.h"
#include "lib/formats/dtype.h"
#include "lib/formats/layout_size.h"

namespace ktx::kernels {

inline constexpr int64_t kPanelWord = 4;

// Word w of a panel's block is this word of the GGUF's. Kernels should meet new words in
// rising order, as the hardware fetches them ahead: so high bits stand beside the low
// ones that they are first used with, and the scales of Q2_K, Q3_K and Q6_K before their codes.
// (With the words of the GGUF's order, decode of Q6_K had 8.5 of 22 GB/s on a Zen 4 core.)
KTX_CPU_AND_GPU constexpr int64_t panel_source_word(DType dtype, int64_t w, Layout layout) {
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
struct PanelCut {
  int64_t blocks, block_bytes, words, rest_begin, rest_bytes;
  int64_t first_word;  // in a block, in bytes: words go round the rest
  bool stream;         // every block's rest stands before its words

  KTX_CPU_AND_GPU constexpr PanelCut(Panel16Form form, int64_t blocks, int64_t block_bytes,
                                     Layout layout)
      : blocks(blocks),
        block_bytes(block_bytes),
        words((block_bytes - form.rest_bytes) / kPanelWord),
        rest_begin(form.rest_begin),
        rest_bytes(form.rest_bytes),
        first_word(form.rest_begin == 0 ? form.rest_bytes : 0),
        stream(layout == Layout::Panel16Stream) {}
  KTX_CPU_AND_GPU constexpr int64_t word_place(int64_t block) const {
    const int64_t rests = stream ? block + 1 : 0;
    return (block * words * kPanelWord + rests * rest_bytes) * kPanelRows;
  }
  KTX_CPU_AND_GPU constexpr int64_t rest_place(int64_t block) const {
    if (stream) return block * block_bytes * kPanelRows;
    return word_place(blocks) + block * rest_bytes * kPanelRows;
  }
};

// The cut of a dtype of panel16.def.
inline PanelCut panel_cut(DType dtype, int64_t cols, Layout layout) {
  const DTypeInfo& type = info(dtype);
  return {*panel16_form(dtype), cols / type.block_elems, type.block_bytes, layout};
}

}  // namespace ktx::kernels

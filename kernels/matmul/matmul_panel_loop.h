// Weights in panels of 16 rows (panel16.h) times int8 activations, over a vector policy.
//
// A lane is a row, and an output has one sum. For each 128 columns in rising order, whose
// four groups b of 32 have the activation scales shared * 2^-n (lib/formats/act_q8.h)
//
//   dot   = sum of code * q over the group                         (an exact int)
//   v     = dot * 2^-n                                             (exact)
//   group = fma(v, weight scale, group)        [two scales in 32 columns: one, then the other]
//   group = group - min * (2^-n * sum of q), one rounding          [formats with a float min]
//   group = group - step * (sum over b of min * 2^-n * sum of q)   [with minima in steps: the
//                                            sum is exact, and there is one rounding for 128]
//   sum   = fma(shared, group, sum)
//
// so that nothing is ever summed across lanes, and tokens, ranges and instruction sets
// change no bit.
//
//   panel_activations.h   what a token brings
//   matmul_panel_few.h    up to 16 tokens: words go straight into registers
//   matmul_panel_many.h   more: unpacked codes meet the tokens in register tiles
//
// Included by matmul_panel_<isa>.cc only.
#pragma once

#include "kernels/matmul/matmul_panel_many.h"

namespace ktx::kernels {
namespace {

template <class V, class Codes>
void panel_product(const MatmulArgs& a) {
  if (a.tokens == 0 || a.row_begin >= a.row_end) return;
  if (a.tokens == 1) return panel_direct<V, Codes, 1>(a, 0);
  if (a.tokens == 2) return panel_direct<V, Codes, 2>(a, 0);
  if (a.tokens <= kMostFewTokens) return panel_few<V, Codes>(a, 0, a.tokens);
  const int64_t end = (a.row_end + kPanelRows - 1) / kPanelRows;
  for (int64_t i = 0; i < a.tokens; i += kChunkTokens) {
    const int64_t tokens = a.tokens - i < kChunkTokens ? a.tokens - i : kChunkTokens;
    for (int64_t p = a.row_begin / kPanelRows; p < end; p += kChunkPanels) {
      const int64_t panels = end - p < kChunkPanels ? end - p : kChunkPanels;
      VectorTiles<V, Codes>::block(a, p, panels, i, tokens);
    }
  }
}

}  // namespace
}  // namespace ktx::kernels

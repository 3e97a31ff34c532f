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
//   matmul_panel_skinny.h GEMV and skinny GEMM: words go straight into registers
//   matmul_panel_many.h   GEMM: unpacked codes meet the tokens in register tiles
//
// The rows of matmul.def say for how many tokens each of them is taken.
//
// Included by matmul_panel_<isa>.cc only.
#pragma once

#include "kernels/matmul/matmul_panel_many.h"

namespace ktx::kernels {
namespace {

// Kernels: run<Codes> is the function for a format.
template <class V, int kTokens>
struct PanelGemv {
  using Vec = V;
  template <class Codes>
  static void run(const MatmulArgs& a) {
    panel_direct<V, Codes, kTokens>(a);
  }
};
template <class V>
struct PanelSkinny {
  using Vec = V;
  template <class Codes>
  static void run(const MatmulArgs& a) {
    panel_skinny<V, Codes>(a, 0, a.tokens);
  }
};
template <class V>
struct PanelGemm {
  using Vec = V;
  template <class Codes>
  static void run(const MatmulArgs& a) {
    const int64_t end = (a.row_end + kPanelRows - 1) / kPanelRows;
    for (int64_t i = 0; i < a.tokens; i += kChunkTokens) {
      const int64_t tokens = a.tokens - i < kChunkTokens ? a.tokens - i : kChunkTokens;
      for (int64_t p = a.row_begin / kPanelRows; p < end; p += kChunkPanels) {
        const int64_t panels = end - p < kChunkPanels ? end - p : kChunkPanels;
        VectorTiles<V, Codes>::block(a, p, panels, i, tokens);
      }
    }
  }
};

// The function of a kernel for a dtype; null when the layout does not have its codes.
template <class Kernel>
MatmulFn of_panel16(DType dtype) {
  switch (dtype) {
#define KTX_PANEL16(id, rest_begin, rest_bytes) \
  case DType::id:                               \
    return Kernel::template run<PanelCodes<typename Kernel::Vec, DType::id>>;
#include "lib/formats/panel16.def"
#undef KTX_PANEL16
    default:
      return nullptr;
  }
}
template <class Kernel>
MatmulFn of_panel16_stream(DType dtype) {
  switch (dtype) {
#define KTX_PANEL16_STREAM(id) \
  case DType::id:              \
    return Kernel::template run<StreamCodes<typename Kernel::Vec, DType::id>>;
#include "lib/formats/panel16_stream.def"
#undef KTX_PANEL16_STREAM
    default:
      return nullptr;
  }
}

}  // namespace
}  // namespace ktx::kernels

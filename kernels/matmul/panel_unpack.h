// From panels to bytes in scratch, of which many tokens take products.
// Included by matmul_panel_many.h only.
#pragma once

#include "kernels/matmul/panel_activations.h"

namespace ktx::kernels {
namespace {

// Blocks [first, first + count) of a panel as bytes, scales and minima. Codes are as
// they are multiplied by V::dot.
template <class V, class Codes>
void unpack_panel(const PanelPlace<Codes>& panel, int64_t first, int64_t count,
                  const PanelChunk& out) {
  constexpr int64_t kBlocks = Codes::kUnit / 32;
  const uint8_t* words = panel.words + first / kBlocks * kUnitBytes<Codes>;
  const uint8_t* rest = panel.rest + first / kBlocks * Codes::kRest;
  for (int64_t begin = 0; begin < count; begin += kBlocks) {
    Codes::unit(words, rest,
                [&](int block, const typename V::I(&codes)[8], typename V::F s0, typename V::F s1,
                    typename V::F m, typename V::I steps = V::zero_i(),
                    typename V::F step = V::zero()) KTX_ALWAYS_INLINE {
                  const int64_t b = begin + block;
                  each<8>([&](auto w) KTX_ALWAYS_INLINE {
                    V::store64(out.codes + 512 * b + 64 * w.value, codes[w.value]);
                  });
                  V::store(out.scales + kPanelRows * b * kPartsOf<Codes>, s0);
                  if constexpr (Codes::kGroup == 16) {
                    V::store(out.scales + kPanelRows * (2 * b + 1), s1);
                  }
                  if constexpr (Codes::kMin == PanelMin::Float) {
                    V::store(out.mins + kPanelRows * b, m);
                  } else if constexpr (Codes::kMin == PanelMin::Steps) {
                    constexpr int kEach = Codes::kStepBlocks;
                    if (block % kEach == kEach - 1) {
                      V::store64(out.mins + kPanelRows * (b / kEach), steps);
                    }
                    if (block % kSharedBlocks == kSharedBlocks - 1) {
                      V::store(out.step + kPanelRows * (b / kSharedBlocks), step);
                    }
                  }
                });
    words += kUnitBytes<Codes>;
    rest += Codes::kRest;
  }
}

// What 16 rows of a chunk bring to the blocks that share a scale, from block b on.
template <class Codes>
struct PanelGroup {
  const uint8_t* codes;
  const float* scales;
  const float* mins;
  const float* step;

  KTX_ALWAYS_INLINE PanelGroup(const PanelChunk& w, int64_t b)
      : codes(w.codes + 512 * b),
        scales(w.scales + kPanelRows * b * kPartsOf<Codes>),
        mins(w.mins + kPanelRows * b),
        step(w.step + kPanelRows * (b / kSharedBlocks)) {
    if constexpr (Codes::kMin == PanelMin::Steps) {
      mins = w.mins + kPanelRows * (b / Codes::kStepBlocks);
    }
  }
};

}  // namespace
}  // namespace ktx::kernels

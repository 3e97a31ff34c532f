// One thread's memory while several tokens meet float weights in panels
// (matmul_panel_float_loop.h): a stretch of a tile of tokens, and the sums of 256 rows x
// 128 tokens. Private to kernels/matmul.
#pragma once

#include <cstddef>
#include <cstdint>

#include "lib/formats/layout_size.h"

namespace ktx::kernels {

inline constexpr int64_t kFloatPanels = 16;  // that meet all tokens together
inline constexpr int64_t kFloatPanelTokens = 128;
inline constexpr int64_t kFloatPanelStretch = 2048;  // bytes of a token's activations

struct FloatPanelScratch {
  static constexpr int64_t kActivations = 8 * kFloatPanelStretch;
  static constexpr int64_t kSums = kFloatPanelTokens * kFloatPanels * kPanelRows * 4;
  // Cache lines of the activations as floats (which take two bytes each where they become BF16),
  // filled up to the steps of a stretch.
  static constexpr int64_t kLines = 8 * 2 * kFloatPanelStretch / 64 + 256;
  static constexpr int64_t kBytes = kActivations + kSums + kLines * 8;

  std::byte* activations;
  float* sums;  // of token after token, kFloatPanels * 16 each
  const std::byte** lines;

  explicit FloatPanelScratch(std::byte* memory)
      : activations(memory),
        sums(reinterpret_cast<float*>(memory + kActivations)),
        lines(reinterpret_cast<const std::byte**>(memory + kActivations + kSums)) {}
};

}  // namespace ktx::kernels

// One thread's memory while many tokens meet panels (matmul_panel_loop.h): two panels of 512
// columns as bytes, tiles of activations, and the sums of 192 tokens and eight panels.
// Made for a second cache of 512 KiB. Private to kernels/matmul.
#pragma once

#include <cstddef>
#include <cstdint>

#include "lib/formats/layout_size.h"

namespace ktx::kernels {

inline constexpr int64_t kChunkPanels = 8;
inline constexpr int64_t kChunkBlocks = 16;  // of 32 columns
inline constexpr int64_t kChunkTokens = 192;

// Tokens whose activations are copied side by side (matmul_panel_tile_bf16_tiles.h).
inline constexpr int64_t kBf16TileTokens = 64;

// A panel's part of the scratch: [block][8 words][16 rows][4] codes, [group][16] scales,
// and minima: [block][16], or [1 or 2 blocks][16] words of two steps and [4 blocks][16] of what
// a step is.
struct PanelChunk {
  uint8_t* codes;
  float* scales;
  float* mins;
  float* step;
};

struct PanelScratch {
  static constexpr int64_t kPanels = 2;  // unpacked at once
  static constexpr int64_t kCodes = kChunkBlocks * 512;
  static constexpr int64_t kScales = kChunkBlocks * 2 * kPanelRows * 4;
  static constexpr int64_t kMins = kChunkBlocks * kPanelRows * 4;
  static constexpr int64_t kStep = kMins / 4;
  static constexpr int64_t kPanel = kCodes + kScales + kMins + kStep;
  // 512 columns of all tokens, whose last tile may be full.
  static constexpr int64_t kActivations = kChunkBlocks * (kChunkTokens + 16) * (32 + 4 + 1 + 8);
  static constexpr int64_t kSums = kChunkTokens * kChunkPanels * kPanelRows * 4;
  static constexpr int64_t kLines = 1024;  // to be asked for; and as many to fill up
  static constexpr int64_t kBytes = kPanels * kPanel + kActivations + kSums + 2 * kLines * 8;

  std::byte* panels;
  std::byte* activations;
  float* sums;
  const std::byte** lines;

  explicit PanelScratch(std::byte* memory)
      : panels(memory),
        activations(memory + kPanels * kPanel),
        sums(reinterpret_cast<float*>(activations + kActivations)),
        lines(reinterpret_cast<const std::byte**>(activations + kActivations + kSums)) {}
  PanelChunk panel(int64_t r) const {
    std::byte* at = panels + r * kPanel;
    return {reinterpret_cast<uint8_t*>(at), reinterpret_cast<float*>(at + kCodes),
            reinterpret_cast<float*>(at + kCodes + kScales),
            reinterpret_cast<float*>(at + kCodes + kScales + kMins)};
  }
};

}  // namespace ktx::kernels

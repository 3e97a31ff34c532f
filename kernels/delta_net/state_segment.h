// Tokens of one text, side by side in a pass, and the slots of its states before and behind them
// (lib/runtime/cache/state_pool.h). GPUs read slots instead of pointers, since captured launches
// keep their pointers. The next segment of a text begins with the states behind this one.
#pragma once

#include <cstdint>

namespace ktx::kernels {

struct StateSegment {
  int32_t first = 0;   // row
  int32_t tokens = 0;  // > 0
  int32_t in = -1;     // slot; -1: zeros, before the text's first token
  int32_t out = -1;    // another slot
};

// GPUs may take the delta rule of prompts by chunks of so many tokens, at positions that it divides
// (kernels/cuda/delta_net/delta_chunks.cuh): passes had better end there.
inline constexpr int kDeltaChunk = 64;

}  // namespace ktx::kernels

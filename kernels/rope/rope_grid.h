// Rotary position embedding of tokens that have three positions: their time, line and column, of
// which each pair of a head turns by one (RopeGridAttrs::axis_of). Tokens are patches of an image,
// or those of a text with images.
//
// Pair number i turns by position * inv_freq[i]; pairs, angles and mscale are those of rope.h, and
// where all three positions are alike so are the bits. In place. Each row depends on its own
// positions alone: the same bits in any range.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "lib/ops/step_attrs.h"
#include "lib/support/result.h"
#include "lib/target/isa.h"

namespace ktx::kernels {

struct RopeGridArgs {
  float* y = nullptr;  // [T, heads * head_dim], read and written
  int64_t y_stride = 0;
  const float* inv_freq = nullptr;                  // [rotary_dim / 2]
  std::array<const int32_t*, kTokenAxes> position;  // [T] each, by TokenAxis
  RopeGridAttrs attrs;
  int64_t token_begin = 0;
  int64_t token_end = 0;
  float* scratch = nullptr;  // rotary_dim floats, one per thread
};
using RopeGridFn = void (*)(const RopeGridArgs&);

// Family: "rope_grid".
Result<RopeGridFn> find_rope_grid(std::string_view family, Isa isa);

}  // namespace ktx::kernels

// Rotary position embedding.
//
// In every head, pair (a, b) number i turns by position * inv_freq[i]:
//
//   a' = a * cos - b * sin        b' = a * sin + b * cos
//
// with cos and sin times mscale. Pairs are (2i, 2i + 1) or (i, i + rotary_dim / 2) of
// the rotary part, which lands at y_begin of each head of y; nothing else of y is
// written (see RopeAttrs). In place, or x and y do not overlap. The angle is one F32 product, as
// the models were trained with; cos and sin are right to the last bit or two for any angle.
#pragma once

#include <cstdint>
#include <string_view>

#include "lib/ops/step_attrs.h"
#include "lib/support/result.h"
#include "lib/target/isa.h"

namespace ktx::kernels {

struct RopeArgs {
  const float* x = nullptr;  // [T, heads * head_dim]
  int64_t x_stride = 0;      // elements
  float* y = nullptr;        // [T, heads * y_head_dim]
  int64_t y_stride = 0;
  const float* inv_freq = nullptr;    // [rotary_dim / 2]
  const int32_t* position = nullptr;  // [T]
  RopeAttrs attrs;
  int64_t token_begin = 0;
  int64_t token_end = 0;
  float* scratch = nullptr;  // rotary_dim floats, one per thread
};
using RopeFn = void (*)(const RopeArgs&);

// Families: "rope".
Result<RopeFn> find_rope(std::string_view family, Isa isa);

}  // namespace ktx::kernels

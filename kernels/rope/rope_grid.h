// Rotary position embedding of patches, which have two positions: their line and their column in
// the image.
//
// Patch number p of a grid of `columns` a line is in line p / columns, column p % columns. In every
// head, pairs 0 to head_dim / 4 - 1 turn by line * inv_freq[i], the others by column * inv_freq[i];
// pairs and angles are those of rope.h. In place. Each row depends on its own number alone: the
// same bits in any range.
#pragma once

#include <cstdint>
#include <string_view>

#include "lib/ops/step_attrs.h"
#include "lib/support/result.h"
#include "lib/target/isa.h"

namespace ktx::kernels {

struct RopeGridArgs {
  float* y = nullptr;  // [T, heads * head_dim], read and written
  int64_t y_stride = 0;
  const float* inv_freq = nullptr;    // [head_dim / 2]
  const int32_t* position = nullptr;  // [T] numbers of patches
  int64_t columns = 1;
  RopeGridAttrs attrs;
  int64_t token_begin = 0;
  int64_t token_end = 0;
};
using RopeGridFn = void (*)(const RopeGridArgs&);

// Family: "rope_grid".
Result<RopeGridFn> find_rope_grid(std::string_view family, Isa isa);

}  // namespace ktx::kernels

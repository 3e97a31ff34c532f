// Writes codes and scales into a block, overloaded by the block's type: the reverse of
// decode_block() (int8_block.h). Private to lib/formats (others call quantize_row.h).
//
//   put_scales(scales, mins, block);    // of each group, rounded to what the block can hold
//   put_codes(stored, block);           // of each weight, as numbers of the block: 0..15 of Q4_0
//
// What the rounded scales are, decode_block() says.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "lib/formats/blocks.h"

namespace ktx {

inline float furthest_from_zero(const float* x, int count) {
  return *std::max_element(x, x + count,
                           [](float a, float b) { return std::abs(a) < std::abs(b); });
}

#define KTX_ENCODED(id, low, count, table)                                   \
  void put_scales(const float* scales, const float* mins, Block##id& block); \
  void put_codes(const uint8_t* stored, Block##id& block);
#include "lib/formats/encoded_forms.def"
#undef KTX_ENCODED

}  // namespace ktx

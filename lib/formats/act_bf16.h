// BF16 activations: how one row of K floats (K a multiple of 32) is stored.
//
//   uint16 x[K] | 64 bytes that nobody reads
//
// x rounded to nearest even, NaN stays NaN. Rows are usually a power of two apart, and such
// rows share a few sets of a cache: so much further apart they do not.
#pragma once

#include <cstdint>

namespace ktx {

constexpr int64_t act_bf16_row_bytes(int64_t k) {
  return 2 * k + 64;
}

}  // namespace ktx

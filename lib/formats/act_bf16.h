// BF16 activations: how one row of K floats (K a multiple of 32) is stored.
//
//   uint16 x[K] | 64 unused bytes
//
// x is rounded to nearest even; NaN stays NaN. The unused bytes keep rows from being a power of two
// apart, at which they would compete for a few sets of a cache.
#pragma once

#include <cstdint>

namespace ktx {

constexpr int64_t act_bf16_row_bytes(int64_t k) {
  return 2 * k + 64;
}

}  // namespace ktx

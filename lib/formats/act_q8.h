// Int8 activations: how one row of K floats (K a multiple of 32) is stored.
//
// The row is padded with zeros to P, the next multiple of 256, and is four-fifths
// codes; the arrays stand one after another:
//
//   int8 q[P] | float scale[P/32] | int16 sum[P/16]
//
// x[i] ~ scale[i/32] * q[i]; scale = absmax / 127 of the 32, q rounded to nearest
// even; sum[j] = q[16j] + ... + q[16j + 15], exactly, for formats with a minimum or
// an offset. One scale per 32 (not per 256 as ggml's Q8_K) costs a multiply per
// group and halves the rounding error. Sums per 16 and whole 256s let every format
// take its minimum with one integer product per 256 weights, without a tail.
// A group that holds NaN or infinity has a NaN scale and zero codes: the product
// then says NaN too instead of a wrong number.
#pragma once

#include <cstdint>

namespace ktx {

inline constexpr int64_t kActQ8Group = 32;

constexpr int64_t act_q8_padded(int64_t k) {
  return (k + 255) / 256 * 256;
}
constexpr int64_t act_q8_scale_offset(int64_t k) {
  return act_q8_padded(k);
}
constexpr int64_t act_q8_sum_offset(int64_t k) {
  return act_q8_padded(k) / 8 * 9;
}
constexpr int64_t act_q8_row_bytes(int64_t k) {
  return act_q8_padded(k) / 4 * 5;
}

}  // namespace ktx

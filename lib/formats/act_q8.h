// Int8 activations: how one row of K floats (K a multiple of 32) is stored.
//
// The row is padded with zeros to P, the next multiple of 256. Three arrays follow one another;
// four fifths of the bytes are codes:
//
//   int8 q[P] | float scale[P/32] | int16 sum[P/16]
//
// x[i] ~ scale[i/32] * q[i], q rounded to nearest even. sum[j] = q[16j] + ... + q[16j + 15] is
// exact; products with formats that have a minimum or an offset use it. The four scales of 128
// columns are one shared number divided by powers of two,
//
//   scale[g] = shared * 2^-n[g],  0 <= n[g] <= kActQ8MostPower, one of them 0
//
// each the smallest with no code above 127. The shared one is a group's own absmax / 127 times a
// power of two: of the four candidates the one with the least rounding error (kernels/quantize). A
// product therefore scales a group's sum by its exponent alone, and multiplies by the shared scale
// once per 128 columns. A scale per 32 elements (ggml's Q8_K has one per 256) nearly halves the
// rounding error; powers of two give a tenth of that back.
//
// Magnitudes below 2^-115 become zeros. 128 columns of zeros have scales 0. 128 columns with a NaN
// or infinity have NaN scales and zero codes, so the product is NaN as well instead of a wrong
// number.
#pragma once

#include <cstdint>

namespace ktx {

inline constexpr int64_t kActQ8Group = 32;
inline constexpr int64_t kActQ8Shared = 128;  // columns whose scales share a number
inline constexpr int kActQ8MostPower = 15;

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

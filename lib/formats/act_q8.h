// Int8 activations: how one row of K floats (K a multiple of 32) is stored.
//
// The row is padded with zeros to P, the next multiple of 256, and is four-fifths
// codes; the arrays stand one after another:
//
//   int8 q[P] | float scale[P/32] | int16 sum[P/16]
//
// x[i] ~ scale[i/32] * q[i], q rounded to nearest even; sum[j] = q[16j] + ... + q[16j + 15],
// exactly, for formats with a minimum or an offset. The four scales of 128 columns are one
// number over powers of two,
//
//   scale[g] = shared * 2^-n[g],  0 <= n[g] <= kActQ8MostPower, one of them 0
//
// each the least such that no code is above 127, and the shared one is a group's own absmax
// / 127 times a power of two: the one of four that rounds least (kernels/quantize). So a
// product turns a sum of codes into a number by its exponent alone, and multiplies by the
// shared scale once for 128 columns. One scale for 32 (not for 256 as ggml's Q8_K) nearly
// halves the rounding error; powers of two give a tenth of it back.
//
// Magnitudes below 2^-115 are zeros. 128 columns of zeros have scales 0; 128 that hold NaN
// or infinity have NaN scales and zero codes: the product then says NaN too instead of a
// wrong number.
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

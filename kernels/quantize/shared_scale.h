// The scales of 128 activations: four groups of 32, one number over powers of two
// (lib/formats/act_q8.h).
//
//   largest magnitudes   6.0   1.1   5.0   0.0
//   become 127           6.0   1.5   6.0   0.75          with 6.0 as the shared number
//                       10.0   1.25  5.0  1.25      with 5.0: a worse start, worse sums
//
// Rounding errors are as large as the scales, so the number is chosen whose scales have the
// least sum of squares. Integers and sums of powers of two: the same in every variant.
// Private to kernels/quantize.
#pragma once

#include <cstdint>

#include "lib/formats/act_q8.h"

namespace ktx::kernels {

inline constexpr int kSharedGroups = kActQ8Shared / kActQ8Group;

namespace shared_scale {
// Of floats as bits. An exponent below this one has no scale worth the name.
inline constexpr int kInfinity = 255, kLeastExponent = 12;
inline constexpr uint32_t kMantissa = 0x7fffff;

inline int exponent(uint32_t bits) {
  return static_cast<int>(bits >> 23);
}
// Of the least number with this mantissa, at least bits.
inline int raised(uint32_t bits, uint32_t mantissa) {
  return exponent(bits) + ((bits & kMantissa) > mantissa ? 1 : 0);
}
inline float float_of(uint32_t bits) {
  float value;
  __builtin_memcpy(&value, &bits, sizeof value);
  return value;
}
inline uint32_t with_exponent(int exponent) {
  return static_cast<uint32_t>(exponent) << 23;
}
}  // namespace shared_scale

// largest[g]: the bits of the largest magnitude of group g, at most those of infinity where
// it is finite or infinite. out[g]: what becomes 127 there: 0 where all is zero, NaN where
// anything is not finite.
inline void share_scale(const uint32_t (&largest)[kSharedGroups], float (&out)[kSharedGroups]) {
  using namespace shared_scale;
  uint32_t top = 0;
  for (uint32_t bits : largest) top = bits > top ? bits : top;
  const int top_exponent = exponent(top);
  if (top_exponent < kLeastExponent || top_exponent == kInfinity) {
    for (float& value : out) value = top_exponent == kInfinity ? __builtin_nanf("") : 0;
    return;
  }
  uint32_t mantissa = top & kMantissa;
  float best = __builtin_inff();
  for (uint32_t candidate : largest) {
    // (One exponent further would be infinity.)
    if (candidate == 0 || top_exponent == kInfinity - 1) continue;
    const uint32_t m = candidate & kMantissa;
    float squares = 0;  // of the scales, relative
    for (uint32_t bits : largest) {
      int power = raised(bits, m) - top_exponent;
      power = power > -kActQ8MostPower ? power : -kActQ8MostPower;
      squares += float_of(with_exponent(127 + 2 * power));
    }
    const float one = float_of(with_exponent(127) | m);
    const float cost = squares * (one * one);
    if (cost < best) best = cost, mantissa = m;
  }
  int least = raised(top, mantissa) - kActQ8MostPower;
  least = least > kLeastExponent ? least : kLeastExponent;
  for (int g = 0; g < kSharedGroups; ++g) {
    const int e = raised(largest[g], mantissa);
    out[g] = float_of(with_exponent(e > least ? e : least) | mantissa);
  }
}

}  // namespace ktx::kernels

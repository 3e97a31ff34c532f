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

// Four numbers, a lane each.
typedef int32_t Int4 __attribute__((vector_size(16)));
typedef float Float4 __attribute__((vector_size(16)));

// largest: the bits of the largest magnitude of each group, at least those of infinity where
// it is not finite. What becomes 127 there: 0 where all is zero, NaN where anything is not
// finite.
inline Float4 share_scale(Int4 largest) {
  // Floats as bits. With an exponent below kLeastExponent there is no useful scale.
  constexpr int32_t kInfinity = 255, kLeastExponent = 12, kMantissa = 0x7fffff, kOne = 127 << 23;
  int32_t top = 0;
  for (int g = 0; g < kSharedGroups; ++g) top = largest[g] > top ? largest[g] : top;
  const int32_t top_exponent = top >> 23;
  if (top_exponent < kLeastExponent) return Float4{};
  if (top_exponent >= kInfinity) return Float4{} + __builtin_nanf("");
  const Int4 exponent = largest >> 23, mantissa = largest & kMantissa;
  int32_t best = top & kMantissa;
  // (One exponent further would be infinity.)
  if (top_exponent < kInfinity - 1) {
    // A lane is a candidate's mantissa: the squares of all scales with it, relative.
    Float4 squares = {};
    for (int g = 0; g < kSharedGroups; ++g) {
      // (A comparison is -1 where it holds: raised by one.)
      Int4 power = exponent[g] - top_exponent - (mantissa[g] > mantissa);
      power = power > -kActQ8MostPower ? power : Int4{} - kActQ8MostPower;
      squares += reinterpret_cast<Float4>(kOne + (power << 24));
    }
    const Float4 one = reinterpret_cast<Float4>(kOne | mantissa);
    const Float4 cost = squares * (one * one);
    float least = __builtin_inff();
    for (int c = 0; c < kSharedGroups; ++c) {
      if (largest[c] != 0 && cost[c] < least) least = cost[c], best = mantissa[c];
    }
  }
  const Int4 raised = exponent - (mantissa > best);
  int32_t floor = top_exponent + ((top & kMantissa) > best ? 1 : 0) - kActQ8MostPower;
  floor = floor > kLeastExponent ? floor : kLeastExponent;
  return reinterpret_cast<Float4>((raised > floor ? raised : Int4{} + floor) << 23 | best);
}

}  // namespace ktx::kernels

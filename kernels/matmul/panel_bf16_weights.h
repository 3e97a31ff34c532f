// Weights of a panel as BF16, the form in which they meet activations in family
// matmul_panel16_tile_bf16.
//
//   float f = fma(1 + code * 2^-bits, S, C)      what a BF16 takes of it: its upper half
//   S = 2^bits * s,  C = -(2^bits + offset) * s - m,   s = kBf16Up * scale, m = kBf16Up * min
//
// where code is the unsigned one of panel_codes.h: f is kBf16Up * (scale * (code - offset) - min).
// A code is put into the mantissa of 1.0 instead of being converted, and cut off instead of
// rounded: two instructions and one, where a conversion and a rounding take three and four,
// and unpacking is what bounds this family with few tokens. Cutting off takes half a unit in
// the last place of a BF16 on average, 2^-8 / (2 ln 2) of the magnitude over all mantissas,
// and kBf16Up puts it back, so that the error is that of rounding (0.175 % of a weight instead
// of 0.166 %, no bias). It is less than one unit: a weight that is a BF16 stays itself.
//
// bits is 7 for codes up to 127, 15 for those above: C is rounded, to 2^(bits - 24) scales. Q4_K
// has bits of its columns' own, as its eight codes of a word are put into mantissas with two shifts
// instead of seven: where two are in place 12 or 16 of the word, shifted left or right by 12, three
// are without a shift, at 8, 12 and 16.
#pragma once

#include <cstdint>

#include "lib/formats/dtype.h"

namespace ktx::kernels {

// It has 14 bits, so that C is exact where a scale is a power of two, and zero stays zero.
inline constexpr float kBf16Up = 8215.0f / 8192;

// What a format's codes have been raised by, and where they stand in the mantissa (but for
// bf16_bits).
struct Bf16Codes {
  int offset;
  int bits;
};

// For formats of lib/formats/panel16.def.
constexpr Bf16Codes bf16_codes(DType dtype) {
  switch (dtype) {
    case DType::Q8_0:
    case DType::IQ4_NL:
    case DType::IQ4_XS:
      return {128, 15};
    case DType::Q6_K:
      return {32, 7};
    case DType::Q5_0:
      return {16, 7};
    case DType::MXFP4:
      return {12, 7};
    case DType::Q4_0:
      return {8, 7};
    case DType::Q3_K:
      return {4, 7};
    case DType::TQ1_0:
    case DType::TQ2_0:
      return {1, 7};
    default:
      return {0, 7};
  }
}

// bits of a column.
constexpr int bf16_bits(DType dtype, int64_t column) {
  // Low nibbles of a word's bytes, and high ones, which are 32 columns further.
  constexpr int kNibbles[2][4] = {{11, 15, 7, 11}, {7, 11, 15, 7}};
  return dtype == DType::Q4_K ? kNibbles[column / 32 % 2][column % 4] : bf16_codes(dtype).bits;
}

}  // namespace ktx::kernels

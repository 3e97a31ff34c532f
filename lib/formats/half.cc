// IEEE half and bfloat16 in integer arithmetic; the conversions of dtype.h.
//
// The results are those of the F16C instructions for all inputs, NaNs included
// (made quiet, payload kept), so that scalar and vector code agree bit for bit.
#include <bit>

#include "lib/formats/dtype.h"

namespace ktx {

float half_to_float(uint16_t half) {
  const uint32_t sign = (half & 0x8000u) << 16;
  const uint32_t exponent = half >> 10 & 31;
  const uint32_t fraction = half & 0x3ff;
  if (exponent == 0) {  // zero or subnormal: fraction * 2^-24, exact in a float
    const float magnitude = static_cast<float>(fraction) * 0x1p-24f;
    return std::bit_cast<float>(std::bit_cast<uint32_t>(magnitude) | sign);
  }
  if (exponent == 31) {
    const uint32_t quiet = fraction != 0 ? 0x400000 : 0;
    return std::bit_cast<float>(sign | 0x7f800000 | quiet | fraction << 13);
  }
  return std::bit_cast<float>(sign | (exponent + (127 - 15)) << 23 | fraction << 13);
}

uint16_t float_to_half(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t magnitude = bits & 0x7fffffff;
  const uint32_t sign = bits >> 16 & 0x8000;
  if (magnitude > 0x7f800000) {
    return static_cast<uint16_t>(sign | 0x7e00 | (magnitude >> 13 & 0x3ff));
  }
  // 65520 is halfway between the largest half and the next power of two.
  if (magnitude >= 0x477ff000) return static_cast<uint16_t>(sign | 0x7c00);
  if (magnitude < 0x38800000) {
    // Below 2^-14 halves are multiples of 2^-24, as are floats in [0.5, 1): the
    // addition rounds for us.
    const float rounded = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(rounded) - 0x3f000000));
  }
  const uint32_t rounded = magnitude + 0xfff + (magnitude >> 13 & 1);
  return static_cast<uint16_t>(sign | ((rounded >> 13) - ((127 - 15) << 10)));
}

float bfloat16_to_float(uint16_t value) {
  return std::bit_cast<float>(uint32_t{value} << 16);
}

uint16_t float_to_bfloat16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffff) > 0x7f800000) return static_cast<uint16_t>(bits >> 16 | 0x40);
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

}  // namespace ktx

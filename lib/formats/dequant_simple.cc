// Scalar decode of the formats of 32 weights with one scale, and of those of 64 and 128. Layouts
// and equations: blocks.h.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "lib/formats/dtype.h"
#include "lib/formats/int8_block.h"

namespace ktx {
namespace {

constexpr int kHalfBlock = 16;  // the low nibbles come first, then the high ones

// The nibble of weight `index`.
int nibble(const uint8_t (&codes)[16], int index) {
  return codes[index % kHalfBlock] >> (index / kHalfBlock * 4) & 15;
}

// Bit `index` of a field of 32, as bit 4 of a code.
int fifth_bit(const uint8_t (&high)[4], int index) {
  return (high[index / 8] >> (index % 8) & 1) << 4;
}

// 2^(exponent - 128); below the normal floats for exponents 0 and 1.
float mxfp4_half_scale(uint8_t exponent) {
  if (exponent < 2) return std::bit_cast<float>(0x00200000u << exponent);
  return std::bit_cast<float>((exponent - 1u) << 23);
}

// Half of ue4m3(bits): codes are doubled. The byte 0xff is 480, as ggml reads it.
float nvfp4_half_scale(uint8_t bits) {
  if (bits == 0x7f) return 0;
  const int exponent = bits >> 3 & 15, mantissa = bits & 7;
  const int fraction = exponent == 0 ? mantissa : 8 + mantissa;
  return std::ldexp(static_cast<float>(fraction), std::max(exponent, 1) - 11);
}

}  // namespace

void decode_block(const BlockQ4_0& in, Int8Block out) {
  *out.scales = half_to_float(in.scale);
  for (int i = 0; i < 32; ++i) out.codes[i] = static_cast<int8_t>(nibble(in.codes, i) - 8);
}

void decode_block(const BlockQ4_1& in, Int8Block out) {
  *out.scales = half_to_float(in.scale);
  *out.mins = -half_to_float(in.offset);
  for (int i = 0; i < 32; ++i) out.codes[i] = static_cast<int8_t>(nibble(in.codes, i));
}

void decode_block(const BlockQ5_0& in, Int8Block out) {
  *out.scales = half_to_float(in.scale);
  for (int i = 0; i < 32; ++i) {
    out.codes[i] = static_cast<int8_t>(nibble(in.codes, i) + fifth_bit(in.high, i) - 16);
  }
}

void decode_block(const BlockQ5_1& in, Int8Block out) {
  *out.scales = half_to_float(in.scale);
  *out.mins = -half_to_float(in.offset);
  for (int i = 0; i < 32; ++i) {
    out.codes[i] = static_cast<int8_t>(nibble(in.codes, i) + fifth_bit(in.high, i));
  }
}

void decode_block(const BlockQ8_0& in, Int8Block out) {
  *out.scales = half_to_float(in.scale);
  std::memcpy(out.codes, in.codes, sizeof(in.codes));
}

void decode_block(const BlockMXFP4& in, Int8Block out) {
  *out.scales = mxfp4_half_scale(in.exponent);
  for (int i = 0; i < 32; ++i) out.codes[i] = kMxfp4Doubled[nibble(in.codes, i)];
}

void decode_block(const BlockNVFP4& in, Int8Block out) {
  for (int g = 0; g < 4; ++g) out.scales[g] = nvfp4_half_scale(in.scales[g]);
  for (int i = 0; i < 64; ++i) {
    const int byte = in.codes[i / 16 * 8 + i % 8];
    out.codes[i] = kMxfp4Doubled[byte >> (i % 16 / 8 * 4) & 15];
  }
}

void decode_block(const BlockQ1_0& in, Int8Block out) {
  for (int g = 0; g < 4; ++g) out.scales[g] = half_to_float(in.scale);
  for (int i = 0; i < 128; ++i) {
    out.codes[i] = static_cast<int8_t>(in.codes[i / 8] >> (i % 8) & 1 ? 1 : -1);
  }
}

void decode_block(const BlockQ2_0& in, Int8Block out) {
  for (int g = 0; g < 2; ++g) out.scales[g] = half_to_float(in.scale);
  for (int i = 0; i < 64; ++i) {
    out.codes[i] = static_cast<int8_t>((in.codes[i / 4] >> (i % 4 * 2) & 3) - 1);
  }
}

void decode_block(const BlockIQ4_NL& in, Int8Block out) {
  *out.scales = half_to_float(in.scale);
  for (int i = 0; i < 32; ++i) out.codes[i] = kIq4Values[nibble(in.codes, i)];
}

}  // namespace ktx

#include "lib/formats/encode_block.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "lib/formats/dtype.h"

namespace ktx {
namespace {

constexpr float kMostOfHalf = 65504;

uint16_t half_of(float value) {
  return float_to_half(std::clamp(value, -kMostOfHalf, kMostOfHalf));
}

// The steps that a value is, nearest, within [low, high]; 0 of a step of 0.
int steps_of(float value, float step, int low, int high) {
  if (step == 0) return std::clamp(0, low, high);
  return static_cast<int>(
      std::clamp(std::nearbyint(value / step), static_cast<float>(low), static_cast<float>(high)));
}

// Nibbles, halves of 32.
void put_nibbles(const uint8_t* stored, uint8_t* codes) {
  for (int i = 0; i < 16; ++i) {
    codes[i] = static_cast<uint8_t>((stored[i] & 15) | (stored[i + 16] & 15) << 4);
  }
}

void put_fifth_bits(const uint8_t* stored, uint8_t (&high)[4]) {
  std::fill_n(high, 4, uint8_t{0});
  for (int i = 0; i < 32; ++i) {
    high[i / 8] = static_cast<uint8_t>(high[i / 8] | (stored[i] >> 4) << (i % 8));
  }
}

// For Q2_K and Q3_K.
void put_pairs_of_bits(const uint8_t* stored, uint8_t (&codes)[64]) {
  std::fill_n(codes, 64, uint8_t{0});
  for (int i = 0; i < 256; ++i) {
    uint8_t& byte = codes[i / 128 * 32 + i % 32];
    byte = static_cast<uint8_t>(byte | (stored[i] & 3) << (i % 128 / 32 * 2));
  }
}

// For Q4_K and Q5_K: 64 weights in 32 bytes.
void put_nibbles_of_k(const uint8_t* stored, uint8_t (&codes)[128]) {
  for (int i = 0; i < 128; ++i) {
    const uint8_t* const first = stored + i / 32 * 64 + i % 32;
    codes[i] = static_cast<uint8_t>((first[0] & 15) | (first[32] & 15) << 4);
  }
}

// The bit `bit` of each, as Q3_K and Q5_K have it.
void put_top_bits(const uint8_t* stored, int bit, uint8_t (&high)[32]) {
  std::fill_n(high, 32, uint8_t{0});
  for (int i = 0; i < 256; ++i) {
    high[i % 32] = static_cast<uint8_t>(high[i % 32] | (stored[i] >> bit & 1) << (i / 32));
  }
}

// For Q4_K and Q5_K: scales and mins are not negative.
template <class Block>
void put_scales_and_mins(const float* scales, const float* mins, Block& block) {
  block.scale = half_of(*std::max_element(scales, scales + 8) / 63);
  block.min = half_of(*std::max_element(mins, mins + 8) / 63);
  std::fill_n(block.scales, 12, uint8_t{0});
  for (int g = 0; g < 8; ++g) {
    const int scale = steps_of(scales[g], half_to_float(block.scale), 0, 63);
    const int min = steps_of(mins[g], half_to_float(block.min), 0, 63);
    if (g < 4) {
      block.scales[g] = static_cast<uint8_t>(block.scales[g] | scale);
      block.scales[g + 4] = static_cast<uint8_t>(block.scales[g + 4] | min);
    } else {
      block.scales[g + 4] = static_cast<uint8_t>((scale & 15) | (min & 15) << 4);
      block.scales[g - 4] = static_cast<uint8_t>(block.scales[g - 4] | (scale >> 4) << 6);
      block.scales[g] = static_cast<uint8_t>(block.scales[g] | (min >> 4) << 6);
    }
  }
}

// An offset instead of a min.
template <class Block>
void put_scale_and_offset(const float* scales, const float* mins, Block& block) {
  block.scale = half_of(*scales);
  block.offset = half_of(-*mins);
}

}  // namespace

void put_scales(const float* scales, const float*, BlockQ4_0& block) {
  block.scale = half_of(*scales);
}
void put_codes(const uint8_t* stored, BlockQ4_0& block) {
  put_nibbles(stored, block.codes);
}

void put_scales(const float* scales, const float* mins, BlockQ4_1& block) {
  put_scale_and_offset(scales, mins, block);
}
void put_codes(const uint8_t* stored, BlockQ4_1& block) {
  put_nibbles(stored, block.codes);
}

void put_scales(const float* scales, const float*, BlockQ5_0& block) {
  block.scale = half_of(*scales);
}
void put_codes(const uint8_t* stored, BlockQ5_0& block) {
  put_nibbles(stored, block.codes);
  put_fifth_bits(stored, block.high);
}

void put_scales(const float* scales, const float* mins, BlockQ5_1& block) {
  put_scale_and_offset(scales, mins, block);
}
void put_codes(const uint8_t* stored, BlockQ5_1& block) {
  put_nibbles(stored, block.codes);
  put_fifth_bits(stored, block.high);
}

void put_scales(const float* scales, const float*, BlockQ8_0& block) {
  block.scale = half_of(*scales);
}
void put_codes(const uint8_t* stored, BlockQ8_0& block) {
  for (int i = 0; i < 32; ++i) block.codes[i] = static_cast<int8_t>(stored[i] - 127);
}

void put_scales(const float* scales, const float* mins, BlockQ2_K& block) {
  block.scale = half_of(*std::max_element(scales, scales + 16) / 15);
  block.min = half_of(*std::max_element(mins, mins + 16) / 15);
  for (int g = 0; g < 16; ++g) {
    block.scales[g] = static_cast<uint8_t>(steps_of(scales[g], half_to_float(block.scale), 0, 15) |
                                           steps_of(mins[g], half_to_float(block.min), 0, 15) << 4);
  }
}
void put_codes(const uint8_t* stored, BlockQ2_K& block) {
  put_pairs_of_bits(stored, block.codes);
}

void put_scales(const float* scales, const float*, BlockQ3_K& block) {
  block.scale = half_of(furthest_from_zero(scales, 16) / -32);
  std::fill_n(block.scales, 12, uint8_t{0});
  for (int g = 0; g < 16; ++g) {
    const int code = steps_of(scales[g], half_to_float(block.scale), -32, 31) + 32;
    uint8_t& low = block.scales[g % 8];
    uint8_t& high = block.scales[8 + g % 4];
    low = static_cast<uint8_t>(low | (code & 15) << (4 * (g / 8)));
    high = static_cast<uint8_t>(high | (code >> 4) << (2 * (g / 4)));
  }
}
void put_codes(const uint8_t* stored, BlockQ3_K& block) {
  put_pairs_of_bits(stored, block.codes);
  put_top_bits(stored, 2, block.high);
}

void put_scales(const float* scales, const float* mins, BlockQ4_K& block) {
  put_scales_and_mins(scales, mins, block);
}
void put_codes(const uint8_t* stored, BlockQ4_K& block) {
  put_nibbles_of_k(stored, block.codes);
}

void put_scales(const float* scales, const float* mins, BlockQ5_K& block) {
  put_scales_and_mins(scales, mins, block);
}
void put_codes(const uint8_t* stored, BlockQ5_K& block) {
  put_nibbles_of_k(stored, block.codes);
  put_top_bits(stored, 4, block.high);
}

void put_scales(const float* scales, const float*, BlockQ6_K& block) {
  block.scale = half_of(furthest_from_zero(scales, 16) / -128);
  for (int g = 0; g < 16; ++g) {
    block.scales[g] =
        static_cast<int8_t>(steps_of(scales[g], half_to_float(block.scale), -128, 127));
  }
}
void put_codes(const uint8_t* stored, BlockQ6_K& block) {
  std::memset(block.low, 0, sizeof(block.low));
  std::memset(block.high, 0, sizeof(block.high));
  for (int i = 0; i < 256; ++i) {
    const int half = i / 128, quarter = i % 128 / 32, j = i % 32;
    uint8_t& low = block.low[64 * half + 32 * (quarter % 2) + j];
    uint8_t& high = block.high[32 * half + j];
    low = static_cast<uint8_t>(low | (stored[i] & 15) << (quarter / 2 * 4));
    high = static_cast<uint8_t>(high | (stored[i] >> 4) << (2 * quarter));
  }
}

void put_scales(const float* scales, const float*, BlockIQ4_NL& block) {
  block.scale = half_of(*scales);
}
void put_codes(const uint8_t* stored, BlockIQ4_NL& block) {
  put_nibbles(stored, block.codes);
}

void put_scales(const float* scales, const float*, BlockIQ4_XS& block) {
  block.scale = half_of(furthest_from_zero(scales, 8) / -32);
  block.scales_high = 0;
  std::fill_n(block.scales_low, 4, uint8_t{0});
  for (int g = 0; g < 8; ++g) {
    const int code = steps_of(scales[g], half_to_float(block.scale), -32, 31) + 32;
    uint8_t& low = block.scales_low[g / 2];
    low = static_cast<uint8_t>(low | (code & 15) << (4 * (g % 2)));
    block.scales_high = static_cast<uint16_t>(block.scales_high | (code >> 4) << (2 * g));
  }
}
void put_codes(const uint8_t* stored, BlockIQ4_XS& block) {
  for (int g = 0; g < 8; ++g) put_nibbles(stored + 32 * g, block.codes + 16 * g);
}

// A power of two, with codes doubled; 0 is its smallest.
void put_scales(const float* scales, const float*, BlockMXFP4& block) {
  const float scale = std::abs(*scales);
  const float exponent = scale > 0 ? std::nearbyint(std::log2(scale)) + 128 : 0;
  block.exponent = static_cast<uint8_t>(std::clamp(exponent, 0.f, 254.f));  // an infinite one, too
}
void put_codes(const uint8_t* stored, BlockMXFP4& block) {
  put_nibbles(stored, block.codes);
}

}  // namespace ktx

// Scalar decode of the IQ formats. Layouts and equations: blocks.h; grids:
// iq_tables.h. (IQ4_NL has no groups and is in dequant_simple.cc.)
#include <cstring>

#include "lib/formats/dtype.h"
#include "lib/formats/int8_block.h"
#include "lib/formats/iq_tables.h"

namespace ktx {
namespace {

uint32_t load32(const void* bytes) {
  uint32_t word;
  std::memcpy(&word, bytes, sizeof(word));
  return word;
}

// (0.5 + nibble) / 4 of `scale`, in this order of roundings.
float quarter_scale(float scale, uint32_t nibble) {
  return scale * (0.5f + static_cast<float>(nibble)) * 0.25f;
}

// Nibble g of eight bytes, the low one first.
uint32_t scale_nibble(const uint8_t* scales, int group) {
  return scales[group / 2] >> (group % 2 * 4) & 15;
}

// `count` codes: the grid's bytes, negative where a sign bit is set.
void put_signed(uint64_t grid, uint32_t signs, int count, int8_t* codes) {
  for (int j = 0; j < count; ++j) {
    const int magnitude = static_cast<int>(grid >> (8 * j) & 255);
    codes[j] = static_cast<int8_t>((signs >> j & 1) != 0 ? -magnitude : magnitude);
  }
}

// Eight codes of IQ1: grid value + delta in eighths.
void put_shifted(uint64_t grid, int delta_eighths, int8_t* codes) {
  for (int j = 0; j < 8; ++j) {
    const int value = static_cast<int8_t>(grid >> (8 * j) & 255);
    codes[j] = static_cast<int8_t>(8 * value + delta_eighths);
  }
}

// Scale of IQ1 codes in eighths; the division is exact.
float eighth_scale(float scale, int step) {
  return scale * static_cast<float>(2 * step + 1) * 0.125f;
}

}  // namespace

void decode_block(const BlockIQ2_XXS& in, Int8Block out) {
  const float scale = half_to_float(in.scale);
  for (int group = 0; group < 8; ++group) {
    const uint32_t indices = load32(in.codes + 4 * group);
    const uint32_t rest = load32(in.codes + 4 * group + 2);
    out.scales[group] = quarter_scale(scale, rest >> 28);
    for (int l = 0; l < 4; ++l) {
      put_signed(kIq2XxsGrid[indices >> (8 * l) & 255], even_signs(rest >> (7 * l) & 127), 8,
                 out.codes + 32 * group + 8 * l);
    }
  }
}

void decode_block(const BlockIQ2_XS& in, Int8Block out) {
  const float scale = half_to_float(in.scale);
  for (int g = 0; g < 16; ++g) out.scales[g] = quarter_scale(scale, scale_nibble(in.scales, g));
  for (int k = 0; k < 32; ++k) {
    const uint32_t code = in.codes[k];
    put_signed(kIq2XsGrid[code & 511], even_signs(code >> 9), 8, out.codes + 8 * k);
  }
}

void decode_block(const BlockIQ2_S& in, Int8Block out) {
  const float scale = half_to_float(in.scale);
  for (int g = 0; g < 16; ++g) out.scales[g] = quarter_scale(scale, scale_nibble(in.scales, g));
  for (int k = 0; k < 32; ++k) {
    const int index = in.index[k] | (in.high[k / 4] >> (2 * (k % 4)) & 3) << 8;
    put_signed(kIq2SGrid[index], in.signs[k], 8, out.codes + 8 * k);
  }
}

void decode_block(const BlockIQ3_XXS& in, Int8Block out) {
  const float scale = half_to_float(in.scale);
  for (int group = 0; group < 8; ++group) {
    const uint32_t rest = load32(in.signs_and_scales + 4 * group);
    out.scales[group] = scale * (0.5f + static_cast<float>(rest >> 28)) * 0.5f;
    for (int l = 0; l < 8; ++l) {
      const uint32_t signs = even_signs(rest >> (7 * (l / 2)) & 127);
      put_signed(kIq3XxsGrid[in.index[8 * group + l]], signs >> (l % 2 * 4), 4,
                 out.codes + 32 * group + 4 * l);
    }
  }
}

void decode_block(const BlockIQ3_S& in, Int8Block out) {
  const float scale = half_to_float(in.scale);
  for (int g = 0; g < 8; ++g) {
    out.scales[g] = scale * static_cast<float>(1 + 2 * scale_nibble(in.scales, g));
  }
  for (int k = 0; k < 64; ++k) {
    const int index = in.index[k] | (in.high[k / 8] >> (k % 8) & 1) << 8;
    put_signed(kIq3SGrid[index], in.signs[k / 2] >> (k % 2 * 4), 4, out.codes + 4 * k);
  }
}

void decode_block(const BlockIQ1_S& in, Int8Block out) {
  const float scale = half_to_float(in.scale);
  for (int g = 0; g < 8; ++g) out.scales[g] = eighth_scale(scale, in.high[g] >> 12 & 7);
  for (int k = 0; k < 32; ++k) {
    const int high = in.high[k / 4];
    const int index = in.index[k] | (high >> (3 * (k % 4)) & 7) << 8;
    put_shifted(kIq1Grid[index], (high & 0x8000) != 0 ? -1 : 1, out.codes + 8 * k);
  }
}

void decode_block(const BlockIQ1_M& in, Int8Block out) {
  uint16_t words[4];
  std::memcpy(words, in.scales, sizeof(words));
  const auto bits = static_cast<uint16_t>(words[0] >> 12 | (words[1] >> 12) << 4 |
                                          (words[2] >> 12) << 8 | (words[3] >> 12) << 12);
  const float scale = half_to_float(bits);
  for (int g = 0; g < 16; ++g) {
    out.scales[g] = eighth_scale(scale, words[g / 4] >> (3 * (g % 4)) & 7);
  }
  for (int k = 0; k < 32; ++k) {
    const int nibble = in.high[k / 2] >> (k % 2 * 4) & 15;
    const int index = in.index[k] | (nibble & 7) << 8;
    put_shifted(kIq1Grid[index], (nibble & 8) != 0 ? -1 : 1, out.codes + 8 * k);
  }
}

void decode_block(const BlockIQ4_XS& in, Int8Block out) {
  const float scale = half_to_float(in.scale);
  for (int g = 0; g < 8; ++g) {
    const int low = in.scales_low[g / 2] >> (4 * (g % 2)) & 15;
    const int high = in.scales_high >> (2 * g) & 3;
    out.scales[g] = scale * static_cast<float>((low | high << 4) - 32);
  }
  for (int i = 0; i < 256; ++i) {
    const int code = in.codes[i / 32 * 16 + i % 16] >> (i % 32 / 16 * 4) & 15;
    out.codes[i] = kIq4Values[code];
  }
}

}  // namespace ktx

// Scalar decode of the K formats: 256 weights in groups with quantised scales.
// Layouts and equations: blocks.h.
#include "lib/formats/dtype.h"
#include "lib/formats/int8_block.h"

namespace ktx {
namespace {

// The two-bit code of weight `index` (Q2_K, Q3_K).
int code2(const uint8_t (&codes)[64], int index) {
  return codes[index / 128 * 32 + index % 32] >> (index % 128 / 32 * 2) & 3;
}

// The four-bit code of weight `index` (Q4_K, Q5_K).
int code4(const uint8_t (&codes)[128], int index) {
  return codes[index / 64 * 32 + index % 32] >> (index % 64 / 32 * 4) & 15;
}

// Bit index / 32 of byte index % 32: the top bit of Q3_K and Q5_K.
int top_bit(const uint8_t (&high)[32], int index) {
  return high[index % 32] >> (index / 32) & 1;
}

int code6(const BlockQ6_K& in, int index) {
  const int half = index / 128;
  const int quarter = index % 128 / 32;
  const int j = index % 32;
  const int low = in.low[64 * half + 32 * (quarter % 2) + j] >> (quarter / 2 * 4) & 15;
  const int high = in.high[32 * half + j] >> (2 * quarter) & 3;
  return low | high << 4;
}

// Scale and min of group `group` of Q4_K and Q5_K, 0..63 each.
struct ScaleMin6 {
  int scale;
  int min;
};
ScaleMin6 scale_min6(const uint8_t (&scales)[12], int group) {
  if (group < 4) return {scales[group] & 63, scales[group + 4] & 63};
  const int low = scales[group + 4];
  return {(low & 15) | (scales[group - 4] >> 6) << 4, (low >> 4) | (scales[group] >> 6) << 4};
}

// Scale of group `group` of Q3_K, -32..31.
int scale6(const uint8_t (&scales)[12], int group) {
  const int low = scales[group % 8] >> (4 * (group / 8)) & 15;
  const int high = scales[8 + group % 4] >> (2 * (group / 4)) & 3;
  return (low | high << 4) - 32;
}

// The eight scales and mins of Q4_K and Q5_K.
template <class Block>
void decode_scales(const Block& in, Int8Block out) {
  const float scale = half_to_float(in.scale);
  const float min = half_to_float(in.min);
  for (int g = 0; g < 8; ++g) {
    const ScaleMin6 group = scale_min6(in.scales, g);
    out.scales[g] = scale * static_cast<float>(group.scale);
    out.mins[g] = min * static_cast<float>(group.min);
  }
}

}  // namespace

void decode_block(const BlockQ2_K& in, Int8Block out) {
  const float scale = half_to_float(in.scale);
  const float min = half_to_float(in.min);
  for (int g = 0; g < 16; ++g) {
    out.scales[g] = scale * static_cast<float>(in.scales[g] & 15);
    out.mins[g] = min * static_cast<float>(in.scales[g] >> 4);
  }
  for (int i = 0; i < 256; ++i) out.codes[i] = static_cast<int8_t>(code2(in.codes, i));
}

void decode_block(const BlockQ3_K& in, Int8Block out) {
  const float scale = half_to_float(in.scale);
  for (int g = 0; g < 16; ++g) out.scales[g] = scale * static_cast<float>(scale6(in.scales, g));
  for (int i = 0; i < 256; ++i) {
    out.codes[i] = static_cast<int8_t>(code2(in.codes, i) + 4 * top_bit(in.high, i) - 4);
  }
}

void decode_block(const BlockQ4_K& in, Int8Block out) {
  decode_scales(in, out);
  for (int i = 0; i < 256; ++i) out.codes[i] = static_cast<int8_t>(code4(in.codes, i));
}

void decode_block(const BlockQ5_K& in, Int8Block out) {
  decode_scales(in, out);
  for (int i = 0; i < 256; ++i) {
    out.codes[i] = static_cast<int8_t>(code4(in.codes, i) + 16 * top_bit(in.high, i));
  }
}

void decode_block(const BlockQ6_K& in, Int8Block out) {
  const float scale = half_to_float(in.scale);
  for (int g = 0; g < 16; ++g) out.scales[g] = scale * static_cast<float>(in.scales[g]);
  for (int i = 0; i < 256; ++i) out.codes[i] = static_cast<int8_t>(code6(in, i) - 32);
}

}  // namespace ktx

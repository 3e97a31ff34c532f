// The blocks of every format as GGUF files hold them: one struct per row of
// dtype.def, named Block<Type>, with the layout of its bits.
//
//   BlockQ4_0 block;
//   std::memcpy(&block, bytes, sizeof(block));
//   float w5 = half_to_float(block.scale) * (int(block.codes[5] & 15) - 8);
//
// These are the formats of ggml (ggml-common.h), where they are defined by code
// only; the names of the fields are ours. Little-endian. Words used below:
//   code   the small integer stored for a weight
//   group  weights that share a scale inside a block of 256
//   half   IEEE binary16 in a uint16_t
// "nibbles, halves of 32": byte j of 16 holds weight j (low) and j + 16 (high).
#pragma once

#include <cstdint>

namespace ktx {

#pragma pack(push, 1)  // files promise no alignment: a block may stand at any address

struct BlockF32 {
  float value;
};
struct BlockF16 {
  uint16_t value;
};
struct BlockBF16 {
  uint16_t value;
};
struct BlockI32 {
  int32_t value;
};

// w = scale * (code - 8). Nibbles, halves of 32.
struct BlockQ4_0 {
  uint16_t scale;
  uint8_t codes[16];
};

// w = scale * code + offset. Nibbles, halves of 32.
struct BlockQ4_1 {
  uint16_t scale;
  uint16_t offset;
  uint8_t codes[16];
};

// w = scale * (code - 16). Low four bits as Q4_0; bit j of `high` is bit 4 of
// weight j (a little-endian uint32 at an unaligned place).
struct BlockQ5_0 {
  uint16_t scale;
  uint8_t high[4];
  uint8_t codes[16];
};

// w = scale * code + offset. Bits as Q5_0.
struct BlockQ5_1 {
  uint16_t scale;
  uint16_t offset;
  uint8_t high[4];
  uint8_t codes[16];
};

// w = scale * code.
struct BlockQ8_0 {
  uint16_t scale;
  int8_t codes[32];
};

// w = 2^(exponent - 127) * e2m1(code). Nibbles, halves of 32; bit 3 of the code
// is the sign, bits 0..2 choose 0, 0.5, 1, 1.5, 2, 3, 4, 6.
struct BlockMXFP4 {
  uint8_t exponent;
  uint8_t codes[16];
};

// 4 groups of 16: w = ue4m3(scales[g]) * e2m1(code), codes as in MXFP4. Byte 8 * g + j of `codes`
// holds weight 16 * g + j (low) and 16 * g + 8 + j (high). ue4m3: four bits of exponent, biased by
// 7, above three of mantissa, denormal at exponent 0; bit 7 is ignored and 0x7f is zero.
struct BlockNVFP4 {
  uint8_t scales[4];
  uint8_t codes[32];
};

// w = scale where bit i % 8 of codes[i / 8] is set, else -scale.
struct BlockQ1_0 {
  uint16_t scale;
  uint8_t codes[16];
};

// w = scale * (code - 1). Two bits, weight i at bits 2 * (i % 4) of codes[i / 4].
struct BlockQ2_0 {
  uint16_t scale;
  uint8_t codes[16];
};

// 16 groups of 16: w = scale * (scales[g] & 15) * code - min * (scales[g] >> 4).
// codes: two bits. Byte 32 * h + j holds weights 128 * h + 32 * i + j at bits
// 2 * i, for i = 0..3 and h = 0, 1.
struct BlockQ2_K {
  uint8_t scales[16];
  uint8_t codes[64];
  uint16_t scale;
  uint16_t min;
};

// 16 groups of 16: w = scale * (scale6[g] - 32) * (code - 4).
// Low two bits of a code as in Q2_K; bit 2 of weight 32 * i + j is bit i of
// high[j]. scale6: the low four bits of group g are nibble g / 8 of scales[g % 8];
// the high two are bits 2 * (g / 4) of scales[8 + g % 4].
struct BlockQ3_K {
  uint8_t high[32];
  uint8_t codes[64];
  uint8_t scales[12];
  uint16_t scale;
};

// 8 groups of 32: w = scale * scale6[g] * code - min * min6[g].
// Nibbles: byte 32 * p + j holds weight 64 * p + j (low) and 64 * p + 32 + j.
// scales, 12 bytes: for g < 4 scale6 is the low six bits of byte g and min6 of
// byte 4 + g; for g >= 4 their low four bits are the low and the high nibble of
// byte 4 + g, their top two bits those of byte g - 4 and byte g.
struct BlockQ4_K {
  uint16_t scale;
  uint16_t min;
  uint8_t scales[12];
  uint8_t codes[128];
};

// As Q4_K with five bits: bit 4 of weight 32 * g + j is bit g of high[j].
struct BlockQ5_K {
  uint16_t scale;
  uint16_t min;
  uint8_t scales[12];
  uint8_t high[32];
  uint8_t codes[128];
};

// 16 groups of 16: w = scale * scales[g] * (code - 32).
// Weight 128 * h + 32 * i + j has its low nibble in low[64 * h + 32 * (i % 2) + j],
// the low one for i < 2, and its high two bits at bit 2 * i of high[32 * h + j].
struct BlockQ6_K {
  uint8_t low[128];
  uint8_t high[64];
  int8_t scales[16];
  uint16_t scale;
};

// The IQ2 and IQ3 formats pick the magnitudes of 8 (IQ3: twice 4) weights from a
// grid (iq_tables.h) and store signs beside them, bit j set: weight j negative.
// "even signs": seven stored bits; the eighth makes the number of set bits even.

// 8 groups of 32: w = scale * (0.5 + s) / 4 * +-grid. A group is two
// little-endian uint32: four grid indices of 8 bits; then four even signs of 7
// bits and s in the top 4.
struct BlockIQ2_XXS {
  uint16_t scale;
  uint16_t codes[32];
};

// 16 groups of 16: as IQ2_XXS, s is nibble g % 2 of scales[g / 2]. codes[k] is
// for weights 8 * k on: grid index in the low 9 bits, even signs in the top 7.
struct BlockIQ2_XS {
  uint16_t scale;
  uint16_t codes[32];
  uint8_t scales[8];
};

// As IQ2_XS with a grid of 1024 and whole sign bytes: the index of weights 8 * k
// on is index[k] and bits 2 * (k % 4) of high[k / 4] above it.
struct BlockIQ2_S {
  uint16_t scale;
  uint8_t index[32];
  uint8_t signs[32];
  uint8_t high[8];
  uint8_t scales[8];
};

// 8 groups of 32: w = scale * (0.5 + s) / 2 * +-grid. index[k] gives weights
// 4 * k on; a little-endian uint32 per group has four even signs of 7 bits and s
// in the top 4.
struct BlockIQ3_XXS {
  uint16_t scale;
  uint8_t index[64];
  uint8_t signs_and_scales[32];
};

// 8 groups of 32: w = scale * (1 + 2 * s) * +-grid, s nibble g % 2 of
// scales[g / 2]. Bit 8 of the index of weights 4 * k on is bit k % 8 of
// high[k / 8].
struct BlockIQ3_S {
  uint16_t scale;
  uint8_t index[64];
  uint8_t high[8];
  uint8_t signs[32];
  uint8_t scales[4];
};

// 8 groups of 32: w = scale * (1 + 2 * s) * (grid + delta), the grid of -1, 0, 1.
// high[g]: bits 3 * l are the top three of the index of weights 32 * g + 8 * l on
// (low eight: index[4 * g + l]), s in bits 12..14; delta is 1/8, negative with
// bit 15 set.
struct BlockIQ1_S {
  uint16_t scale;
  uint8_t index[32];
  uint16_t high[8];
};

// 16 groups of 16, as IQ1_S. Nibble k % 2 of high[k / 2] belongs to weights 8 * k
// on: top three bits of the index, then the sign of delta. scales is four
// little-endian uint16: s of group g in bits 3 * (g % 4) of word g / 4; the top
// nibbles of the words 0..3 are the nibbles of the half `scale`, lowest first.
struct BlockIQ1_M {
  uint8_t index[32];
  uint8_t high[16];
  uint8_t scales[8];
};

// w = scale * kIq4Values[code]. Nibbles, halves of 32.
struct BlockIQ4_NL {
  uint16_t scale;
  uint8_t codes[16];
};

// 8 groups of 32: w = scale * (s - 32) * kIq4Values[code]. s: low four bits are
// nibble g % 2 of scales_low[g / 2], high two bits 2 * g of scales_high. Nibbles
// in halves of 32, group by group.
struct BlockIQ4_XS {
  uint16_t scale;
  uint16_t scales_high;
  uint8_t scales_low[4];
  uint8_t codes[128];
};

// w = scale * (trit - 1). A byte holds five trits t0..t4 as the fraction
// 0.t0t1t2t3t4 in base 3, rounded up to 1/256: trit n is the integer part of
// 3 * (byte * 3^n mod 256) / 256. codes[0..31] hold weights 0..159 (trit n of
// byte j: weight 32 * n + j), codes[32..47] weights 160..239 (16 * n + j),
// high[0..3] weights 240..255 (4 * n + j, four trits).
struct BlockTQ1_0 {
  uint8_t codes[48];
  uint8_t high[4];
  uint16_t scale;
};

// w = scale * (code - 1). Two bits, placed as in Q2_K.
struct BlockTQ2_0 {
  uint8_t codes[64];
  uint16_t scale;
};

#pragma pack(pop)

#define KTX_DTYPE(id, name, gguf, elems, bytes)                        \
  static_assert(sizeof(Block##id) == bytes && alignof(Block##id) == 1, \
                "the block of " name " has " #bytes " bytes");
#include "lib/formats/dtype.def"
#undef KTX_DTYPE

// MXFP4 in doubled codes, so that they are integers: w = 2^(exponent - 128) *
// kMxfp4Doubled[code], exact for all 256 exponents: the two smallest are subnormal
// floats. (The OCP format calls exponent 255 a NaN; ggml does not.)
inline constexpr int8_t kMxfp4Doubled[16] = {0, 1,  2,  3,  4,  6,  8,  12,
                                             0, -1, -2, -3, -4, -6, -8, -12};

// The code book of IQ4_NL and IQ4_XS.
inline constexpr int8_t kIq4Values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                          1,    13,   25,  38,  53,  69,  89,  113};

}  // namespace ktx

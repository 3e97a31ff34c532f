// Properties of every format for any bytes. The values themselves are tested in
// quant_zoo_test.cc.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <random>
#include <vector>

#include "lib/formats/dtype.h"
#include "lib/formats/int8_form.h"
#include "lib/formats/iq_tables.h"

namespace ktx {
namespace {

constexpr uint32_t kSeed = 20240611;

bool same(float a, float b) {
  return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b) ||
         (std::isnan(a) && std::isnan(b));
}

// Also what UBSan watches: all paths over random bytes at odd addresses.
TEST(DequantizeRow, AnyBytesAtAnyAddressDecodeBlockByBlock) {
  std::mt19937 random(kSeed);
  SCOPED_TRACE("seed " + std::to_string(kSeed));
  for (const DTypeInfo& format : all_dtypes()) {
    if (format.dtype == DType::I32) continue;
    constexpr int kBlocks = 512;
    const int64_t elems = int64_t{kBlocks} * format.block_elems;
    std::vector<uint8_t> bytes(1 + static_cast<size_t>(kBlocks) * format.block_bytes);
    for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
    std::vector<float> row(elems + 1, 12345.0f);
    dequantize_row(format.dtype, bytes.data() + 1, elems, row.data());
    EXPECT_EQ(row[elems], 12345.0f) << format.name << " writes past the row";
    std::vector<float> block(format.block_elems);
    for (int b = 0; b < kBlocks; ++b) {
      dequantize_row(format.dtype, bytes.data() + 1 + b * format.block_bytes, format.block_elems,
                     block.data());
      for (int i = 0; i < format.block_elems; ++i) {
        ASSERT_TRUE(same(block[i], row[b * format.block_elems + i])) << format.name << " " << i;
      }
    }
  }
}

// The two decodes share the code that takes blocks apart; this pins the contract.
TEST(Int8Form, CodesTimesScaleMinusMinIsTheWeight) {
  std::mt19937 random(kSeed);
  SCOPED_TRACE("seed " + std::to_string(kSeed));
  int forms = 0;
  for (const DTypeInfo& format : all_dtypes()) {
    const auto form = int8_form(format.dtype);
    if (!form) continue;
    ++forms;
    const int64_t elems = 64 * format.block_elems;
    std::vector<uint8_t> bytes(64 * static_cast<size_t>(format.block_bytes));
    for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
    std::vector<float> weights(elems);
    dequantize_row(format.dtype, bytes.data(), elems, weights.data());
    std::vector<int8_t> codes(elems);
    std::vector<float> scales(elems / form->group);
    std::vector<float> mins(elems / form->group);
    decode_int8_row(format.dtype, bytes.data(), elems, codes.data(), scales.data(),
                    form->has_min ? mins.data() : nullptr);
    for (int64_t i = 0; i < elems; ++i) {
      const int64_t g = i / form->group;
      const float product = scales[g] * static_cast<float>(codes[i]);
      ASSERT_TRUE(same(form->has_min ? product - mins[g] : product, weights[i]))
          << format.name << " " << i;
    }
  }
  EXPECT_EQ(forms, 25);
  EXPECT_FALSE(int8_form(DType::F32));
  EXPECT_FALSE(int8_form(DType::I32));
}

TEST(DequantizeRow, NoWeightsNoReads) {
  for (const DTypeInfo& format : all_dtypes()) {
    if (format.dtype != DType::I32) dequantize_row(format.dtype, nullptr, 0, nullptr);
  }
}

// Scale 1 and code 1: the smallest statement of a layout that can go wrong.
TEST(DequantizeRow, Q4_0PutsLowNibblesFirst) {
  uint8_t block[18] = {0x00, 0x3c, 0x9f};  // 1.0; weight 0 has code 15, weight 16 code 9
  float out[32];
  dequantize_row(DType::Q4_0, block, 32, out);
  EXPECT_EQ(out[0], 7.0f);
  EXPECT_EQ(out[16], 1.0f);
  EXPECT_EQ(out[1], -8.0f);
}

TEST(DequantizeRow, Mxfp4ScalesAreExactAtBothEnds) {
  for (int exponent = 0; exponent < 256; ++exponent) {
    uint8_t block[17] = {static_cast<uint8_t>(exponent), 0xf1};  // codes 0.5 and -6
    float out[32];
    dequantize_row(DType::MXFP4, block, 32, out);
    EXPECT_EQ(out[0], std::ldexp(0.5f, exponent - 127));
    EXPECT_EQ(out[16], std::ldexp(-6.0f, exponent - 127));
  }
}

// Its scales are numbers of FP8 (E4M3) without a sign, and groups of 16 are halves of 8 bytes.
TEST(DequantizeRow, Nvfp4TakesItsPlacesAndEveryScale) {
  uint8_t block[36] = {0x38, 0x01, 0x08, 0x7e};  // 1, 2^-9, 2^-6, 448
  block[4] = 0xf1;                               // weights 0 and 8: 0.5 and -6
  block[4 + 7] = 0x2c;                           // 7 and 15: -2 and 1
  block[4 + 8] = 0x07;                           // 16: 6 of the second group
  block[4 + 24 + 3] = 0x90;                      // 59: -0.5 of the fourth
  float out[64];
  dequantize_row(DType::NVFP4, block, 64, out);
  for (int i = 0; i < 64; ++i) {
    const float expected = i == 0    ? 0.5f
                           : i == 8  ? -6.0f
                           : i == 7  ? -2.0f
                           : i == 15 ? 1.0f
                           : i == 16 ? 6.0f / 512
                           : i == 59 ? -224.0f
                                     : 0.0f;
    EXPECT_EQ(out[i], expected) << i;
  }
  for (int bits = 0; bits < 256; ++bits) {
    block[0] = static_cast<uint8_t>(bits);
    dequantize_row(DType::NVFP4, block, 64, out);
    const int exponent = bits / 8 % 16, mantissa = bits % 8;
    double scale =
        exponent == 0 ? mantissa / 512.0 : std::exp2(exponent - 7) * (1 + mantissa / 8.0);
    if (bits == 0x7f) scale = 0;
    EXPECT_EQ(out[0], 0.5 * scale) << bits;
    EXPECT_EQ(out[8], -6 * scale) << bits;
  }
}

TEST(DequantizeRow, Q1_0IsAScaleAndASign) {
  uint8_t block[18] = {0x00, 0xc1, 0x05, 0x80};  // -2.5; bits 0, 2 and 15 are set
  float out[128];
  dequantize_row(DType::Q1_0, block, 128, out);
  for (int i = 0; i < 128; ++i) {
    EXPECT_EQ(out[i], i == 0 || i == 2 || i == 15 ? -2.5f : 2.5f) << i;
  }
}

TEST(DequantizeRow, Q2_0IsFourNeighboursAByte) {
  uint8_t block[18] = {0x00, 0x42, 0xe4};  // 3; codes 0, 1, 2, 3
  block[17] = 0x1b;                        // 3, 2, 1, 0
  float out[64];
  dequantize_row(DType::Q2_0, block, 64, out);
  for (int i = 0; i < 64; ++i) {
    const int code = i < 4 ? i : i < 60 ? 0 : 63 - i;
    EXPECT_EQ(out[i], 3.0f * (code - 1)) << i;
  }
}

// Every bit of random blocks, by the formulas of blocks.h in the order of the bits in memory.
TEST(DequantizeRow, FormatsOf64And128EqualTheirFormulas) {
  std::mt19937 random(kSeed);
  SCOPED_TRACE("seed " + std::to_string(kSeed));
  constexpr double kE2m1[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  for (int trial = 0; trial < 200; ++trial) {
    uint8_t nvfp4[36], q1[18], q2[18];
    for (uint8_t& byte : nvfp4) byte = static_cast<uint8_t>(random());
    for (uint8_t& byte : q1) byte = static_cast<uint8_t>(random());
    for (uint8_t& byte : q2) byte = static_cast<uint8_t>(random());
    for (int g = 0; g < 4; ++g) nvfp4[g] = static_cast<uint8_t>(0x20 + random() % 0x40);
    q1[1] = q2[1] = 0x3c;  // 1 to 2
    float out[128];
    dequantize_row(DType::NVFP4, nvfp4, 64, out);
    for (int byte = 0; byte < 32; ++byte) {
      const double scale = std::exp2(nvfp4[byte / 8] / 8 - 7) * (1 + nvfp4[byte / 8] % 8 / 8.0);
      for (int high = 0; high < 2; ++high) {
        const int code = nvfp4[4 + byte] >> (4 * high) & 15;
        const double weight = (code < 8 ? scale : -scale) * kE2m1[code % 8];
        EXPECT_EQ(out[byte / 8 * 16 + high * 8 + byte % 8], weight) << byte;
      }
    }
    dequantize_row(DType::Q1_0, q1, 128, out);
    for (int i = 0; i < 128; ++i) {
      const float scale = half_to_float(static_cast<uint16_t>(q1[0] | q1[1] << 8));
      EXPECT_EQ(out[i], (q1[2 + i / 8] & 1 << i % 8) != 0 ? scale : -scale) << i;
    }
    dequantize_row(DType::Q2_0, q2, 64, out);
    for (int byte = 0; byte < 16; ++byte) {
      const float scale = half_to_float(static_cast<uint16_t>(q2[0] | q2[1] << 8));
      for (int i = 0, rest = q2[2 + byte]; i < 4; ++i, rest /= 4) {
        EXPECT_EQ(out[4 * byte + i], scale * static_cast<float>(rest % 4 - 1)) << byte;
      }
    }
  }
}

TEST(IqTables, HoldOnlyTheirLevels) {
  const auto count_others = [](const auto& grid, std::initializer_list<int> levels) {
    int others = 0;
    for (const auto word : grid) {
      for (size_t i = 0; i < sizeof(word); ++i) {
        const int byte = static_cast<int>(word >> (8 * i) & 255);
        others += std::find(levels.begin(), levels.end(), byte) == levels.end();
      }
    }
    return others;
  };
  EXPECT_EQ(count_others(kIq2XxsGrid, {8, 25, 43}), 0);
  EXPECT_EQ(count_others(kIq2XsGrid, {8, 25, 43}), 0);
  EXPECT_EQ(count_others(kIq2SGrid, {8, 25, 43}), 0);
  EXPECT_EQ(count_others(kIq3XxsGrid, {4, 12, 20, 28, 36, 44, 52, 62}), 0);
  EXPECT_EQ(count_others(kIq3SGrid, {1, 3, 5, 7, 9, 11, 13, 15}), 0);
  EXPECT_EQ(count_others(kIq1Grid, {255, 0, 1}), 0);
}

// No entry twice: a slip in the packed numbers would most likely break this.
TEST(IqTables, EntriesAreDistinct) {
  const auto distinct = [](auto grid) {
    std::sort(grid.begin(), grid.end());
    return std::adjacent_find(grid.begin(), grid.end()) == grid.end();
  };
  EXPECT_TRUE(distinct(kIq2XxsGrid));
  EXPECT_TRUE(distinct(kIq2XsGrid));
  EXPECT_TRUE(distinct(kIq2SGrid));
  EXPECT_TRUE(distinct(kIq3XxsGrid));
  EXPECT_TRUE(distinct(kIq3SGrid));
  EXPECT_TRUE(distinct(kIq1Grid));
}

TEST(IqTables, EvenSignsHaveEvenParity) {
  for (uint32_t bits = 0; bits < 128; ++bits) {
    EXPECT_EQ(even_signs(bits) & 127, bits);
    EXPECT_EQ(std::popcount(even_signs(bits)) % 2, 0);
  }
}

}  // namespace
}  // namespace ktx

// The row decoders of every instruction set of this machine against the reference
// decode, for every type: random blocks, special scales, odd lengths.
#include "kernels/matmul/row_decode.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

namespace ktx::kernels {
namespace {

constexpr uint32_t kSeed = 7;
constexpr float kCanary = 12345.0f;

bool same(float a, float b) {
  return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b) ||
         (std::isnan(a) && std::isnan(b));
}

// `blocks` random blocks; from the eighth on every other one gets a special half
// where a format may have its scale or min: the first, second or a last field.
std::vector<uint8_t> random_row(const DTypeInfo& format, int blocks) {
  constexpr uint16_t kSpecial[] = {0x0000, 0x8000, 0x0001, 0x83ff, 0x0400, 0x3c00,
                                   0xbc00, 0x7bff, 0x7c00, 0xfc00, 0x7c01, 0xffff};
  std::mt19937 random(kSeed + static_cast<uint32_t>(format.dtype));
  const size_t bytes = static_cast<size_t>(blocks) * format.block_bytes;
  std::vector<uint8_t> row(1 + bytes);  // decoded from its second byte: no alignment
  uint8_t* data = row.data() + 1;
  for (size_t i = 0; i < bytes; ++i) data[i] = static_cast<uint8_t>(random());
  for (int b = 8; b < blocks; b += 2) {
    const int offsets[] = {0, 2, format.block_bytes - 2, format.block_bytes - 4};
    const int offset = offsets[random() % 4];
    if (offset < 0 || offset + 2 > format.block_bytes) continue;
    const uint16_t special = kSpecial[random() % std::size(kSpecial)];
    std::memcpy(data + static_cast<size_t>(b) * format.block_bytes + offset, &special, 2);
  }
  return row;
}

class RowDecode : public testing::TestWithParam<DTypeInfo> {};

TEST_P(RowDecode, FloatsEqualTheReferenceBitForBit) {
  const DTypeInfo& format = GetParam();
  const int per_block = format.block_elems;
  for (const int blocks : {0, 1, 2, 7, 13, 1000}) {
    const std::vector<uint8_t> row = random_row(format, blocks);
    const int64_t elems = int64_t{blocks} * per_block;
    std::vector<float> expected(elems);
    dequantize_row(format.dtype, row.data() + 1, elems, expected.data());
    for (const Isa isa : usable_isas()) {
      std::vector<float> decoded(elems + 8, kCanary);
      row_decoder(format.dtype, isa)(row.data() + 1, elems, decoded.data());
      for (int64_t i = 0; i < elems; ++i) {
        ASSERT_TRUE(same(decoded[i], expected[i]))
            << name(isa) << ": weight " << i << " is " << decoded[i] << ", not " << expected[i]
            << " (seed " << kSeed << ")";
      }
      for (int i = 0; i < 8; ++i) ASSERT_EQ(decoded[elems + i], kCanary) << name(isa);
    }
  }
}

TEST_P(RowDecode, Int8FormsEqualTheReferenceBitForBit) {
  const DTypeInfo& format = GetParam();
  const auto form = int8_form(format.dtype);
  if (!form) {
    for (const Isa isa : usable_isas()) EXPECT_EQ(int8_decoder(format.dtype, isa), nullptr);
    return;
  }
  for (const int blocks : {0, 1, 2, 7, 13, 1000}) {
    const std::vector<uint8_t> row = random_row(format, blocks);
    const int64_t elems = int64_t{blocks} * format.block_elems;
    const int64_t groups = elems / form->group;
    std::vector<int8_t> codes(elems);
    std::vector<float> scales(groups), mins(groups, kCanary);
    decode_int8_row(format.dtype, row.data() + 1, elems, codes.data(), scales.data(), mins.data());
    for (const Isa isa : usable_isas()) {
      std::vector<int8_t> codes_here(elems + 32, 99);
      std::vector<float> scales_here(groups + 8, kCanary), mins_here(groups + 8, kCanary);
      int8_decoder(format.dtype, isa)(row.data() + 1, elems, codes_here.data(), scales_here.data(),
                                      form->has_min ? mins_here.data() : nullptr);
      for (int64_t i = 0; i < elems; ++i) {
        ASSERT_EQ(codes_here[i], codes[i]) << name(isa) << ": code " << i << ", seed " << kSeed;
      }
      for (int64_t g = 0; g < groups; ++g) {
        ASSERT_TRUE(same(scales_here[g], scales[g])) << name(isa) << ": group " << g;
        ASSERT_TRUE(same(mins_here[g], mins[g])) << name(isa) << ": group " << g;
      }
      for (int i = 0; i < 32; ++i) ASSERT_EQ(codes_here[elems + i], 99) << name(isa);
      for (int i = 0; i < 8; ++i) ASSERT_EQ(scales_here[groups + i], kCanary) << name(isa);
      for (int i = 0; i < 8; ++i) ASSERT_EQ(mins_here[groups + i], kCanary) << name(isa);
    }
  }
}

std::vector<DTypeInfo> weight_formats() {
  std::vector<DTypeInfo> formats;
  for (const DTypeInfo& row : all_dtypes()) {
    if (row.dtype != DType::I32) formats.push_back(row);
  }
  return formats;
}

INSTANTIATE_TEST_SUITE_P(All, RowDecode, testing::ValuesIn(weight_formats()),
                         [](const auto& info) { return std::string(info.param.name); });

// Lengths that are no multiple of a vector exist only for these.
TEST(RowDecoders, PlainTypesDecodeAnyLength) {
  for (const DType dtype : {DType::F32, DType::F16, DType::BF16}) {
    std::vector<uint32_t> row(40);
    std::mt19937 random(kSeed);
    for (uint32_t& word : row) word = static_cast<uint32_t>(random());
    for (int64_t elems = 0; elems < 40; ++elems) {
      std::vector<float> expected(elems);
      dequantize_row(dtype, row.data(), elems, expected.data());
      for (const Isa isa : usable_isas()) {
        std::vector<float> decoded(elems + 1, kCanary);
        row_decoder(dtype, isa)(row.data(), elems, decoded.data());
        for (int64_t i = 0; i < elems; ++i) ASSERT_TRUE(same(decoded[i], expected[i]));
        ASSERT_EQ(decoded[elems], kCanary);
      }
    }
  }
}

TEST(RowDecoders, EveryHalfOnEveryInstructionSet) {
  std::vector<uint16_t> halves(0x10000);
  for (size_t i = 0; i < halves.size(); ++i) halves[i] = static_cast<uint16_t>(i);
  for (const Isa isa : usable_isas()) {
    std::vector<float> decoded(halves.size());
    row_decoder(DType::F16, isa)(halves.data(), std::ssize(halves), decoded.data());
    for (size_t i = 0; i < halves.size(); ++i) {  // NaNs included
      ASSERT_EQ(std::bit_cast<uint32_t>(decoded[i]),
                std::bit_cast<uint32_t>(half_to_float(halves[i])));
    }
  }
}

TEST(RowDecoders, IdsAreNoWeights) {
  EXPECT_EQ(row_decoder(DType::I32, Isa::Avx2), nullptr);
}

}  // namespace
}  // namespace ktx::kernels

// The formats against a file that ggml's reference code wrote: for each type a
// tensor `<TYPE>.packed` and its decode `<TYPE>.f32`, equal bit for bit. Those that are
// newer than the file (NVFP4, Q1_0, Q2_0) are in dequant_scalar_test.cc.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "tests/support/paths.h"
#include "tests/unit/formats/tiny_gguf_reader.h"

namespace ktx {
namespace {

const std::string kZoo = source_dir() + "/tests/models/quant-zoo.gguf";

class QuantZoo : public testing::TestWithParam<DTypeInfo> {
 protected:
  static void SetUpTestSuite() { zoo_ = read_tiny_gguf(kZoo); }
  static inline std::optional<TinyGguf> zoo_;
};

TEST_P(QuantZoo, DecodesBitForBit) {
  ASSERT_TRUE(zoo_) << kZoo << " cannot be read";
  const std::string type(GetParam().name);
  ASSERT_TRUE(zoo_->tensors.contains(type + ".packed"));
  ASSERT_TRUE(zoo_->tensors.contains(type + ".f32"));
  const TinyTensor& packed = zoo_->tensors[type + ".packed"];
  const TinyTensor& expected = zoo_->tensors[type + ".f32"];
  ASSERT_EQ(packed.dtype, GetParam().dtype);
  ASSERT_EQ(expected.dtype, DType::F32);
  ASSERT_EQ(packed.elems, expected.elems);
  ASSERT_GE(packed.elems, 8 * 256);

  std::vector<float> decoded(packed.elems);
  dequantize_row(packed.dtype, packed.data.data(), packed.elems, decoded.data());
  for (int64_t i = 0; i < packed.elems; ++i) {
    uint32_t ours, theirs;
    std::memcpy(&ours, &decoded[i], 4);
    std::memcpy(&theirs, expected.data.data() + 4 * i, 4);
    ASSERT_EQ(ours, theirs) << "weight " << i << " decodes to " << decoded[i];
  }
}

std::vector<DTypeInfo> weight_formats() {
  std::vector<DTypeInfo> formats;
  for (const DTypeInfo& row : all_dtypes()) {
    if (row.dtype != DType::I32 && row.gguf_id < 40) formats.push_back(row);
  }
  return formats;
}

INSTANTIATE_TEST_SUITE_P(All, QuantZoo, testing::ValuesIn(weight_formats()),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace ktx

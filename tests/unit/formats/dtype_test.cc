#include "lib/formats/dtype.h"

#include <gtest/gtest.h>

namespace ktx {
namespace {

TEST(DType, NamesAndGgufIdsLeadBackToTheType) {
  for (const DTypeInfo& row : all_dtypes()) {
    EXPECT_EQ(&info(row.dtype), &row);
    EXPECT_EQ(dtype_from_name(row.name), row.dtype);
    if (row.gguf_id >= 0) {
      EXPECT_EQ(dtype_from_gguf_id(static_cast<uint32_t>(row.gguf_id)), row.dtype);
    }
  }
  EXPECT_EQ(dtype_from_name("Q4_k"), std::nullopt);
  EXPECT_EQ(dtype_from_gguf_id(0xffffffff), std::nullopt);
}

TEST(RowBytes, RefusesPartialBlocksNegativeAndHugeCounts) {
  EXPECT_EQ(row_bytes(DType::Q4_K, 512), 288);
  EXPECT_EQ(row_bytes(DType::Q4_K, 0), 0);
  EXPECT_EQ(row_bytes(DType::Q4_K, 300), std::nullopt);
  EXPECT_EQ(row_bytes(DType::Q4_K, -256), std::nullopt);
  EXPECT_EQ(row_bytes(DType::F32, INT64_MAX), std::nullopt);
}

}  // namespace
}  // namespace ktx

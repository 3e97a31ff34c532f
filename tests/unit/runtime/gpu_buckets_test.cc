#include "lib/runtime/gpu/gpu_buckets.h"

#include <gtest/gtest.h>

namespace ktx::runtime {
namespace {

TEST(GpuBuckets, AreTheSmallestPowersOfTwoThatHoldTheBatch) {
  EXPECT_EQ(GpuBuckets(1, 4096).token_buckets(), (std::vector<int64_t>{1}));
  EXPECT_EQ(GpuBuckets(6, 4096).token_buckets(), (std::vector<int64_t>{1, 2, 4, 8}));
  EXPECT_EQ(GpuBuckets(8, 4096).token_buckets(), (std::vector<int64_t>{1, 2, 4, 8}));
  EXPECT_EQ(GpuBuckets(1000, 4096).largest_batch(), 64);  // more is not worth a graph
}

TEST(GpuBuckets, BoundPositionsUpToTheWholeContext) {
  EXPECT_EQ(GpuBuckets(1, 100).position_buckets(), (std::vector<int64_t>{128}));
  EXPECT_EQ(GpuBuckets(1, 4096).position_buckets(), (std::vector<int64_t>{1024, 4096}));
  EXPECT_EQ(GpuBuckets(1, 10000).position_buckets(), (std::vector<int64_t>{1024, 4096, 10048}));
}

TEST(GpuBuckets, FindTheSmallestShapeThatHoldsAStep) {
  const GpuBuckets buckets(6, 10000);
  for (int64_t tokens = 1; tokens <= 8; ++tokens) {
    for (int64_t positions : {1, 1023, 1024, 1025, 4096, 4097, 10000}) {
      const auto found = buckets.find(tokens, positions);
      ASSERT_TRUE(found);
      const GpuShape shape = buckets.shape(*found);
      EXPECT_GE(shape.tokens, tokens);
      EXPECT_LT(shape.tokens, 2 * tokens);
      EXPECT_EQ(shape.outputs, shape.tokens);
      EXPECT_GE(shape.max_positions, positions);
      EXPECT_TRUE(shape.one_token_each);
      for (int other = 0; other < buckets.count(); ++other) {
        const GpuShape smaller = buckets.shape(other);
        if (smaller.tokens < tokens || smaller.max_positions < positions) continue;
        EXPECT_LE(shape.tokens, smaller.tokens);
        EXPECT_LE(shape.max_positions, smaller.max_positions);
      }
    }
  }
  EXPECT_FALSE(buckets.find(9, 1));
  EXPECT_FALSE(buckets.find(0, 1));
  EXPECT_FALSE(buckets.find(1, 10049));
}

}  // namespace
}  // namespace ktx::runtime

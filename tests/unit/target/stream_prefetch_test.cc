#include "lib/target/stream_prefetch.h"

#include <gtest/gtest.h>

namespace ktx {
namespace {

TEST(StreamPrefetch, IsOfTheProcessorsThatGainByIt) {
  EXPECT_GT(stream_prefetch_bytes("AuthenticAMD", 0x1A), 0) << "Zen 5";
  EXPECT_EQ(stream_prefetch_bytes("AuthenticAMD", 0x19), 0) << "Zen 4";
  EXPECT_EQ(stream_prefetch_bytes("GenuineIntel", 6), 0);
  EXPECT_EQ(stream_prefetch_bytes("", 0x1A), 0);
}

TEST(StreamPrefetch, IsWholeLinesWithinTheFirstCache) {
  const int64_t bytes = stream_prefetch_bytes("AuthenticAMD", 0x1A);
  EXPECT_EQ(bytes % 64, 0);
  EXPECT_LT(bytes, 16 << 10) << "half of it is the activations'";
  EXPECT_GE(stream_prefetch_bytes(), 0);
}

}  // namespace
}  // namespace ktx

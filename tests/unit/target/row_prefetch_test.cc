#include "lib/target/row_prefetch.h"

#include <gtest/gtest.h>

namespace ktx {
namespace {

TEST(RowPrefetch, IsOfTheProcessorsThatGainByIt) {
  EXPECT_EQ(row_prefetch("AuthenticAMD", 0x1A), RowPrefetch::FirstCache) << "Zen 5";
  EXPECT_EQ(row_prefetch("AuthenticAMD", 0x19), RowPrefetch::SecondCache) << "Zen 4";
  EXPECT_EQ(row_prefetch("AuthenticAMD", 0x17), RowPrefetch::None);
  EXPECT_EQ(row_prefetch("GenuineIntel", 6), RowPrefetch::None);
}

}  // namespace
}  // namespace ktx

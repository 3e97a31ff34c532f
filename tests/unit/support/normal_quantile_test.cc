#include "lib/support/normal_quantile.h"

#include <gtest/gtest.h>

#include <limits>

namespace ktx {
namespace {

TEST(NormalQuantile, HasTheValuesOfTables) {
  EXPECT_NEAR(normal_quantile(0.95), 1.6448536269514722, 1e-12);
  EXPECT_NEAR(normal_quantile(0.5), 0, 1e-12);
  EXPECT_NEAR(normal_quantile(0.025), -1.959963984540054, 1e-12);
  EXPECT_NEAR(normal_quantile(1e-9), -5.997807015008182, 1e-9);
}

TEST(NormalQuantile, IsUndoneByTheShareBelow) {
  for (const double share : {0.001, 0.25, 0.75, 0.999}) {
    EXPECT_NEAR(normal_share_below(normal_quantile(share)), share, 1e-12);
  }
  EXPECT_EQ(normal_share_below(-std::numeric_limits<double>::infinity()), 0);
  EXPECT_EQ(normal_share_below(std::numeric_limits<double>::infinity()), 1);
}

}  // namespace
}  // namespace ktx

#include "lib/passes/placement/divide_experts.h"

#include <gtest/gtest.h>

namespace ktx::passes {
namespace {

using Dealt = std::vector<std::vector<int32_t>>;

TEST(DivideExperts, SharesAreThoseOfTheHosts) {
  EXPECT_EQ(deal_experts(nullptr, 0, 8, {0.5, 0.5}), (Dealt{{0, 1, 2, 3}, {4, 5, 6, 7}}));
  EXPECT_EQ(deal_experts(nullptr, 0, 8, {0.25, 0.75}), (Dealt{{0, 1}, {2, 3, 4, 5, 6, 7}}));
  EXPECT_EQ(deal_experts(nullptr, 0, 4, {0.5, 0, 0.5}), (Dealt{{0, 1}, {}, {2, 3}}));
}

TEST(DivideExperts, TheLayersHostKeepsOne) {
  EXPECT_EQ(deal_experts(nullptr, 0, 2, {0.01, 0.5, 0.49}), (Dealt{{0}, {1}, {}}));
}

// Those that are used most go to different hosts.
TEST(DivideExperts, UseIsShared) {
  plan::ExpertProfile profile;
  profile.layers[3] = {100, 1, 100, 1, 1, 1};
  const Dealt dealt = deal_experts(&profile, 3, 6, {0.5, 0.5});
  EXPECT_EQ(dealt[0][0], 0);
  EXPECT_EQ(dealt[1][0], 2);
  EXPECT_EQ(dealt[0].size(), 3u);
}

}  // namespace
}  // namespace ktx::passes

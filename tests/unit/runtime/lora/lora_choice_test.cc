#include "lib/runtime/lora/lora_choice.h"

#include <gtest/gtest.h>

#include <set>

namespace ktx::runtime {
namespace {

TEST(LoraChoice, IsInOrderWithoutWhatHasNoEffect) {
  EXPECT_EQ(chosen({}), LoraChoice());
  EXPECT_EQ(chosen({{1, 0.5f}, {0, 2}}), (LoraChoice{{0, 2}, {1, 0.5f}}));
  EXPECT_EQ(chosen({{1, 0}, {0, 0}}), LoraChoice());
  EXPECT_EQ(chosen({{1, 0.5f}, {0, 0}, {1, -0.0f}}), LoraChoice());
  EXPECT_EQ(chosen({{1, 0.5f}, {1, 2}}), (LoraChoice{{1, 2}}));
}

TEST(LoraChoice, OwnersOfPrefixesDifferWhereChoicesDo) {
  EXPECT_EQ(prefix_owner("key", {}), "key");
  const std::set<std::string> names = {prefix_owner("key", {}),
                                       prefix_owner("", {}),
                                       prefix_owner("key", {{0, 1}}),
                                       prefix_owner("key", {{1, 1}}),
                                       prefix_owner("", {{0, 1}}),
                                       prefix_owner("key", {{0, 0.5f}}),
                                       prefix_owner("key", {{0, 1}, {1, 1}})};
  EXPECT_EQ(names.size(), 7u);
  EXPECT_EQ(prefix_owner("key", {{0, 1}}), prefix_owner("key", {{0, 1}}));
}

}  // namespace
}  // namespace ktx::runtime

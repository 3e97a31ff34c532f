#include "lib/runtime/sampling/dry_penalty.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "lib/runtime/sampling/random.h"

namespace ktx::runtime {
namespace {

using ::testing::Each;
using ::testing::FloatEq;

DryOptions options() {
  DryOptions dry;
  dry.multiplier = 0.8f;
  return dry;
}

std::vector<float> penalties(const DryOptions& dry, const std::vector<int32_t>& history) {
  std::vector<float> logits(10, 0);
  apply_dry_penalty(dry, history, logits);
  return logits;
}

TEST(DryPenalty, GrowsWithTheRepetition) {
  // "1 2 3 4" came before, and "1 2 3" comes again: 4 would make it longer.
  const auto found = penalties(options(), {1, 2, 3, 4, 9, 1, 2, 3});
  EXPECT_FLOAT_EQ(found[4], -0.8f * 1.75f);
  EXPECT_FLOAT_EQ(found[9], 0);
  EXPECT_FLOAT_EQ(penalties(options(), {2, 3, 4, 9, 2, 3})[4], -0.8f);
  EXPECT_THAT(penalties(options(), {3, 4, 9, 3}), Each(FloatEq(0)));  // one token is allowed
}

TEST(DryPenalty, TheLongestRepetitionCounts) {
  const auto found = penalties(options(), {2, 3, 4, 1, 2, 3, 4, 9, 1, 2, 3});
  EXPECT_FLOAT_EQ(found[4], -0.8f * 1.75f);
}

TEST(DryPenalty, StopsAtBreakersAndAtTheWindow) {
  DryOptions dry = options();
  dry.breakers = {{2}};
  EXPECT_THAT(penalties(dry, {1, 2, 3, 4, 9, 1, 2, 3}), Each(FloatEq(0)));
  dry.breakers = {{7}, {1}};
  EXPECT_FLOAT_EQ(penalties(dry, {1, 2, 3, 4, 9, 1, 2, 3})[4], -0.8f);  // "2 3" behind 1
  dry.breakers = {{1, 2}};
  EXPECT_THAT(penalties(dry, {1, 2, 3, 4, 9, 1, 2, 3}), Each(FloatEq(0)));
  dry.breakers = {{4}};  // a breaker is free itself
  EXPECT_THAT(penalties(dry, {1, 2, 3, 4, 9, 1, 2, 3}), Each(FloatEq(0)));
  dry = options();
  dry.window = 5;
  EXPECT_THAT(penalties(dry, {1, 2, 3, 4, 9, 1, 2, 3}), Each(FloatEq(0)));
}

TEST(DryPenalty, AgreesWithTheDefinition) {
  Random random(5);
  for (int round = 0; round < 300; ++round) {
    std::vector<int32_t> history(random.next() % 40);
    for (int32_t& id : history) id = static_cast<int32_t>(random.next() % 3);
    DryOptions dry = options();
    dry.allowed_length = 1 + static_cast<int32_t>(random.next() % 3);
    std::vector<float> expected(10, 0);
    for (int32_t next = 0; next < 10; ++next) {
      size_t longest = 0;
      for (size_t at = 1; at < history.size(); ++at) {
        if (history[at] != next) continue;
        size_t length = 0;
        while (length < at && history[at - 1 - length] == history[history.size() - 1 - length]) {
          ++length;
        }
        longest = std::max(longest, length);
      }
      if (longest >= static_cast<size_t>(dry.allowed_length)) {
        expected[next] = -static_cast<float>(std::min(
            dry.multiplier * std::pow(dry.base, static_cast<double>(longest) - dry.allowed_length),
            1e6));
      }
    }
    ASSERT_EQ(penalties(dry, history), expected) << "round " << round;
  }
}

}  // namespace
}  // namespace ktx::runtime

#include "lib/text/tokenizer/merge_queue.h"

#include <gtest/gtest.h>

#include <random>
#include <set>
#include <utility>

namespace ktx::text {
namespace {

using Order = std::pair<uint32_t, uint32_t>;  // rank, left

// Pushes and pops at random, as merging does: pairs come while others are taken, most often of
// higher ranks than the latest, sometimes of lower ones.
void expect_order(size_t symbols, uint32_t ranks, uint32_t seed) {
  std::mt19937 random(seed);
  MergeQueue queue;
  for (int text = 0; text < 2; ++text) {
    std::set<Order> expected;
    queue.begin(symbols, ranks);
    const auto push = [&](uint32_t rank, uint32_t left) {
      if (expected.insert({rank, left}).second) queue.push({rank, left, rank ^ left});
    };
    for (uint32_t left = 0; left < symbols; ++left) push(random() % ranks, left);
    while (const std::optional<MergePair> pair = queue.pop()) {
      ASSERT_FALSE(expected.empty());
      ASSERT_EQ(Order(pair->rank, pair->left), *expected.begin()) << "seed " << seed;
      EXPECT_EQ(pair->size, pair->rank ^ pair->left);
      EXPECT_LT(queue.soon(), symbols);
      expected.erase(expected.begin());
      const auto left = static_cast<uint32_t>(random() % symbols);
      if (random() % 4 == 0 && pair->rank + 1 < ranks) {
        push(pair->rank + 1 + random() % (ranks - pair->rank - 1), left);
      }
      if (random() % 50 == 0) push(random() % (pair->rank + 1), left);
    }
    EXPECT_TRUE(expected.empty());
  }
}

TEST(MergeQueue, GivesRanksInOrderFromTheLeft) {
  for (const size_t symbols : {1, 2, 100, 2047, 2048, 20000}) {
    for (const uint32_t ranks : {1u, 2u, 500u, 5000u, 250000u}) {
      expect_order(symbols, ranks, static_cast<uint32_t>(symbols + ranks));
    }
  }
}

}  // namespace
}  // namespace ktx::text

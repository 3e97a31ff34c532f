#include "lib/passes/lower/division.h"

#include <gtest/gtest.h>

#include <string>

namespace ktx::passes {
namespace {

// "0-63 128-191" of what a GPU has.
std::string runs_text(const Division& division, int64_t gpu, int64_t gpus) {
  std::string text;
  for (const Run& run : division.runs(gpu, gpus)) {
    if (!text.empty()) text += " ";
    text += std::to_string(run.first) + "-" + std::to_string(run.first + run.count - 1);
  }
  return text;
}

TEST(Division, EvenPartsFollowEachOther) {
  const Division all = Division::even(96, 3);
  EXPECT_EQ(all.whole(), 96);
  EXPECT_EQ(all.part(), 32);
  EXPECT_EQ(runs_text(all, 0, 3), "0-31");
  EXPECT_EQ(runs_text(all, 2, 3), "64-95");
  EXPECT_EQ(all.place_of(48), 16);
}

TEST(Division, FewHeadsAreShared) {
  EXPECT_TRUE(can_share(2, 4));
  EXPECT_FALSE(can_share(4, 3));
  EXPECT_FALSE(can_share(3, 2));
  const Division keys = Division::heads(64, 2, 4);
  EXPECT_EQ(keys.part(), 64);
  for (const int64_t gpu : {0, 1}) EXPECT_EQ(runs_text(keys, gpu, 4), "0-63");
  for (const int64_t gpu : {2, 3}) EXPECT_EQ(runs_text(keys, gpu, 4), "64-127");
}

// Queries, keys and values of a delta net: 2 key heads, 4 value heads of 8.
TEST(Division, SegmentsAreDividedEach) {
  const Segment keys{8, 2, 1, 2}, values{8, 4, 2, 4};
  const Division all({keys, keys, values});
  EXPECT_EQ(all.whole(), 64);
  EXPECT_EQ(all.part(), 32);
  EXPECT_EQ(runs_text(all, 0, 2), "0-7 16-23 32-47");
  EXPECT_EQ(runs_text(all, 1, 2), "8-15 24-31 48-63");
  EXPECT_EQ(all.place_of(16), 8);
  EXPECT_EQ(all.place_of(32), 16);
  const Division behind = all.of(32, 32);
  EXPECT_EQ(behind.part(), 16);
  EXPECT_EQ(runs_text(behind, 1, 2), "16-31");
}

// Value head h of 12 has key head h % 4: GPU 1 of 3 has value heads 4 to 7, GPU 1 of 4 heads 3
// to 5.
TEST(Division, HeadsFollowBehindTheLastOne) {
  const auto keys = [](int64_t gpus) {
    return Division({Segment{1, 4, std::min<int64_t>(4, 12 / gpus), 12}});
  };
  EXPECT_EQ(runs_text(keys(3), 1, 3), "0-3");
  EXPECT_EQ(runs_text(keys(4), 1, 4), "3-3 0-1");
  EXPECT_EQ(runs_text(keys(4), 2, 4), "2-3 0-0");
}

}  // namespace
}  // namespace ktx::passes

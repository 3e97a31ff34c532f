#include "lib/runtime/cpu/ops/column_groups.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <thread>
#include <utility>
#include <vector>

namespace ktx::runtime {
namespace {

OutputRegion columns(int64_t begin, int64_t end) {
  return {nullptr, 0, 1, begin, end};
}

std::pair<int64_t, int64_t> finished(ColumnGroups& groups, int64_t begin, int64_t end) {
  OutputRegion region = columns(begin, end);
  groups.finish(0, region);
  return {region.col_begin, region.col_end};
}

TEST(ColumnGroups, AnItemThatCompletesNoGroupLeavesNothing) {
  ColumnGroups groups;
  groups.start(1, 256, 128);
  const auto [begin, end] = finished(groups, 0, 96);
  EXPECT_EQ(begin, end);
  EXPECT_EQ(finished(groups, 96, 192), std::pair(int64_t{0}, int64_t{128}));
  EXPECT_EQ(finished(groups, 192, 256), std::pair(int64_t{128}, int64_t{256}));
}

TEST(ColumnGroups, OneItemMayCompleteManyAndTheLastGroupMayBeShort) {
  ColumnGroups groups;
  groups.start(1, 352, 128);
  EXPECT_EQ(finished(groups, 320, 352), std::pair(int64_t{320}, int64_t{320}));
  EXPECT_EQ(finished(groups, 64, 320), std::pair(int64_t{128}, int64_t{352}));
  EXPECT_EQ(finished(groups, 0, 64), std::pair(int64_t{0}, int64_t{128}));
}

TEST(ColumnGroups, WithoutGroupsAnItemKeepsItsColumns) {
  ColumnGroups groups;
  groups.start(1, 256, 128);
  groups.clear();
  EXPECT_EQ(finished(groups, 32, 64), std::pair(int64_t{32}, int64_t{64}));
}

// Four threads take items of all lengths in no order: every column is completed once, and by then
// it is written.
TEST(ColumnGroups, EveryColumnIsCompletedOnceWhoeverComesLast) {
  constexpr int64_t kMatrices = 3, kWidth = 1120, kGroup = 128;
  std::mt19937 random(7);
  ColumnGroups groups;
  for (int round = 0; round < 200; ++round) {
    std::vector<std::pair<int64_t, std::pair<int64_t, int64_t>>> items;
    for (int64_t matrix = 0; matrix < kMatrices; ++matrix) {
      for (int64_t at = 0; at < kWidth;) {
        const int64_t end = std::min<int64_t>(kWidth, at + 32 * (1 + random() % 9));
        items.push_back({matrix, {at, end}});
        at = end;
      }
    }
    std::shuffle(items.begin(), items.end(), random);
    groups.start(kMatrices, kWidth, kGroup);
    std::vector<int> written(kMatrices * kWidth), completed(kMatrices * kWidth);
    std::atomic<size_t> next{0};
    std::atomic<int> unwritten{0};
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&] {
        for (size_t item; (item = next++) < items.size();) {
          const auto& [matrix, range] = items[item];
          for (int64_t c = range.first; c < range.second; ++c) written[matrix * kWidth + c] = 1;
          OutputRegion region = columns(range.first, range.second);
          groups.finish(matrix, region);
          for (int64_t c = region.col_begin; c < region.col_end; ++c) {
            if (!written[matrix * kWidth + c]) ++unwritten;
            ++completed[matrix * kWidth + c];
          }
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(unwritten, 0);
    EXPECT_EQ(std::count(completed.begin(), completed.end(), 1), kMatrices * kWidth);
  }
}

}  // namespace
}  // namespace ktx::runtime

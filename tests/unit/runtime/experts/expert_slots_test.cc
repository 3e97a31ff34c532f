#include "lib/runtime/experts/expert_slots.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace ktx::runtime {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

bool any(int32_t) {
  return true;
}

std::vector<int32_t> taken(ExpertSlots& slots, int64_t n,
                           const std::function<bool(int32_t)>& may_go = any) {
  const auto span = slots.take(n, may_go);
  return {span.begin(), span.end()};
}

// Experts 0, 1, ... in slots 0, 1, ..., each used as often as `uses` says.
ExpertSlots full(const std::vector<int>& uses, int64_t experts = 10) {
  ExpertSlots slots(std::ssize(uses), experts);
  for (const int32_t slot : taken(slots, std::ssize(uses))) slots.put(slot, slot);
  for (size_t e = 0; e < uses.size(); ++e) slots.counts().count(static_cast<int32_t>(e), uses[e]);
  return slots;
}

TEST(ExpertSlots, GivesEmptySlotsFirst) {
  ExpertSlots slots(3, 10);
  EXPECT_THAT(taken(slots, 2), ElementsAre(0, 1));
  slots.put(0, 7);
  slots.put(1, 8);
  EXPECT_EQ(slots.slot_of(7), 0);
  EXPECT_THAT(taken(slots, 1), ElementsAre(2));
}

TEST(ExpertSlots, TheLeastUsedGo) {
  ExpertSlots slots = full({5, 1, 9, 2});
  EXPECT_THAT(taken(slots, 2), ElementsAre(1, 3));
  EXPECT_EQ(slots.slot_of(1), -1);
  EXPECT_EQ(slots.slot_of(0), 0);
  EXPECT_EQ(slots.expert_in(3), -1);
}

TEST(ExpertSlots, WhatMayNotGoStays) {
  ExpertSlots slots = full({5, 1, 9, 2});
  EXPECT_THAT(taken(slots, 4, [](int32_t e) { return e == 2 || e == 0; }), ElementsAre(0, 2));
  EXPECT_THAT(taken(slots, 1, [](int32_t) { return false; }), IsEmpty());
  EXPECT_EQ(slots.slot_of(3), 3);
}

TEST(ExpertSlots, OldUsesFadeAway) {
  ExpertSlots slots = full({8, 0});
  slots.counts().age(static_cast<int64_t>(2 * UseCounts::kHalfLife));
  EXPECT_NEAR(slots.counts().of(0), 2, 1e-9);
  slots.counts().count(1, 3);
  EXPECT_THAT(taken(slots, 1), ElementsAre(0));
}

TEST(ExpertSlots, CountsLastAsLongAsARunDoes) {
  ExpertSlots slots(1, 2);
  for (int i = 0; i < 1'000'000; ++i) {
    slots.counts().count(0, 1);
    slots.counts().count(1, 2);
    slots.counts().age(1);
  }
  // The sum of a geometric series.
  const double sum = 1 / (std::exp2(1 / UseCounts::kHalfLife) - 1);
  EXPECT_NEAR(slots.counts().of(0), sum, 1e-6 * sum);
  EXPECT_NEAR(slots.counts().of(1), 2 * sum, 1e-6 * sum);
  EXPECT_THAT(slots.by_count(), ElementsAre(1, 0));
}

TEST(ExpertSlots, AClearedSlotIsEmpty) {
  ExpertSlots slots = full({5, 1});
  slots.clear(0);
  EXPECT_EQ(slots.slot_of(0), -1);
  EXPECT_THAT(taken(slots, 1), ElementsAre(0));
}

}  // namespace
}  // namespace ktx::runtime

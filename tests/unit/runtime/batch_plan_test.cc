#include "lib/runtime/batch_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ktx::runtime {
namespace {

using ::testing::ElementsAre;

TEST(BatchPlan, GivesEverybodyWhoGeneratesItsToken) {
  const StepCandidate list[] = {{1, 5, 10, {}}, {8000, 1, 0, {}}, {1, 6, 10, {}}};
  EXPECT_THAT(plan_step(list, 256, 64), ElementsAre(1, 254, 1));
}

TEST(BatchPlan, ShortPromptsGoFirstButTheOldestIsServed) {
  const StepCandidate list[] = {{8000, 1, 0, {}}, {40, 2, 0, {}}};
  EXPECT_THAT(plan_step(list, 256, 64), ElementsAre(64, 40));
  EXPECT_THAT(plan_step(list, 1024, 64), ElementsAre(341 - 40, 40));
  const StepCandidate many[] = {{8000, 1, 0, {}}, {200, 2, 0, {}}, {300, 3, 0, {}}};
  EXPECT_THAT(plan_step(many, 256, 64), ElementsAre(64, 192, 0));
}

TEST(BatchPlan, AStepThatEndsAPromptIsFilledToAThirdByOthers) {
  // Whoever ends in this step is not cut, and the others end with it.
  const StepCandidate list[] = {{8000, 9, 0, {}}, {90, 1, 0, {}}, {100, 3, 0, {}}, {10, 4, 0, {}}};
  EXPECT_THAT(plan_step(list, 256, 64), ElementsAre(0, 90, 100, 10));
  EXPECT_THAT(plan_step(list, 768, 64), ElementsAre(56, 90, 100, 10));
  // Nobody ends: all of the budget.
  const StepCandidate on[] = {{8000, 1, 0, {}}, {700, 2, 0, {}}};
  EXPECT_THAT(plan_step(on, 512, 64), ElementsAre(128, 384));
}

TEST(BatchPlan, ASharedBeginningIsComputedOnce) {
  const uint64_t a[] = {1, 2, 3}, b[] = {1, 2, 9}, c[] = {4, 5, 6};
  const StepCandidate list[] = {{192, 1, 0, a}, {190, 2, 0, b}, {191, 3, 0, c}};
  // The oldest begins with block 1; the second, which has the same, waits.
  EXPECT_THAT(plan_step(list, 128, 64), ElementsAre(32, 0, 96));
  // In the middle of a block the other one waits too.
  const StepCandidate later[] = {{160, 1, 32, a}, {190, 2, 0, b}};
  EXPECT_THAT(plan_step(later, 128, 64), ElementsAre(128, 0));
  // Where they differ both go on.
  const StepCandidate apart[] = {{64, 1, 128, a}, {62, 2, 128, b}};
  EXPECT_THAT(plan_step(apart, 128, 64), ElementsAre(64, 62));
}

TEST(BatchPlan, NeverGivesMoreThanThereIs) {
  const StepCandidate list[] = {{3, 1, 0, {}}, {1, 2, 7, {}}, {2, 3, 0, {}}};
  EXPECT_THAT(plan_step(list, 3, 64), ElementsAre(1, 1, 1));
  EXPECT_THAT(plan_step(list, 100, 64), ElementsAre(3, 1, 2));
  EXPECT_TRUE(plan_step({}, 10, 64).empty());
}

}  // namespace
}  // namespace ktx::runtime

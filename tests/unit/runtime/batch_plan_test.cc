#include "lib/runtime/scheduler/batch_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ktx::runtime {
namespace {

using ::testing::ElementsAre;

TEST(BatchPlan, GivesEverybodyWhoGeneratesItsToken) {
  const StepCandidate list[] = {{1, 5, 10, {}}, {8000, 1, 0, {}}, {1, 6, 10, {}}};
  EXPECT_THAT(plan_step(list, 256, 64), ElementsAre(1, 254, 1));
}

TEST(BatchPlan, NoImageIsCut) {
  const ImageTokens images[] = {{10, 20, nullptr}, {40, 30, nullptr}};
  const auto at = [&](int64_t position, int64_t remaining) {
    StepCandidate candidate{remaining, 1, position, {}};
    candidate.images = images;
    return candidate;
  };
  const auto share = [&](int64_t position, int64_t budget) {
    const StepCandidate list[] = {at(position, 100 - position)};
    return plan_step(list, budget, 64)[0];
  };
  EXPECT_EQ(share(0, 9), 9);
  EXPECT_EQ(share(0, 10), 10);
  EXPECT_EQ(share(0, 29), 10);
  EXPECT_EQ(share(0, 30), 30);
  EXPECT_EQ(share(20, 10), 10) << "goes on in one";
  EXPECT_EQ(share(30, 39), 10);
  EXPECT_EQ(share(30, 40), 40);
  EXPECT_EQ(share(40, 30), 30);
  // A quarter of the step is the oldest's: an image is all of it.
  const StepCandidate two[] = {at(40, 6000), {500, 2, 0, {}}};
  EXPECT_THAT(plan_step(two, 64, 64), ElementsAre(30, 34));
  // One that takes the whole step: who generates waits for a step.
  const StepCandidate busy[] = {{1, 5, 10, {}}, at(40, 60), {1, 6, 10, {}}};
  EXPECT_THAT(plan_step(busy, 30, 64), ElementsAre(0, 30, 0));
  EXPECT_THAT(plan_step(busy, 31, 64), ElementsAre(1, 30, 0));
  EXPECT_THAT(plan_step(busy, 32, 64), ElementsAre(1, 30, 1));
  // Multiples of 4, but within none.
  const StepCandidate chunks[] = {at(0, 100)};
  EXPECT_THAT(plan_step(chunks, 39, 64, 4), ElementsAre(36));
  EXPECT_THAT(plan_step(chunks, 70, 64, 4), ElementsAre(70)) << "68 is within one";
}

TEST(BatchPlan, WholeTextsGoTheOldestFirstAsTheyFit) {
  const StepCandidate list[] = {{90, 3, 0, {}}, {60, 1, 0, {}}, {30, 2, 0, {}}};
  EXPECT_THAT(plan_whole_texts(list, 100), ElementsAre(0, 60, 30));
  EXPECT_THAT(plan_whole_texts(list, 60), ElementsAre(0, 60, 0));
  EXPECT_THAT(plan_whole_texts(list, 200), ElementsAre(90, 60, 30));
  EXPECT_THAT(plan_whole_texts({}, 100), ElementsAre());
}

TEST(BatchPlan, ShortPromptsGoFirstButTheOldestIsServed) {
  const StepCandidate list[] = {{8000, 1, 0, {}}, {300, 2, 0, {}}};
  EXPECT_THAT(plan_step(list, 256, 64), ElementsAre(64, 192)) << "nobody ends";
  const StepCandidate many[] = {{8000, 1, 0, {}}, {200, 2, 0, {}}, {300, 3, 0, {}}};
  EXPECT_THAT(plan_step(many, 256, 64), ElementsAre(16, 200, 0));
}

TEST(BatchPlan, AStepThatEndsAPromptIsFilledToAnEighthByOthers) {
  const StepCandidate list[] = {{8000, 1, 0, {}}, {40, 2, 0, {}}};
  EXPECT_THAT(plan_step(list, 256, 64), ElementsAre(16, 40));
  EXPECT_THAT(plan_step(list, 1024, 64), ElementsAre(128 - 40, 40));
  // A prompt that ends in this step is not cut, and the others end with it.
  const StepCandidate more[] = {{8000, 9, 0, {}}, {90, 1, 0, {}}, {100, 3, 0, {}}, {10, 4, 0, {}}};
  EXPECT_THAT(plan_step(more, 256, 64), ElementsAre(0, 90, 100, 10));
  EXPECT_THAT(plan_step(more, 2048, 64), ElementsAre(56, 90, 100, 10));
  // No prompt ends: all of the budget.
  const StepCandidate on[] = {{8000, 1, 0, {}}, {700, 2, 0, {}}};
  EXPECT_THAT(plan_step(on, 512, 64), ElementsAre(128, 384));
  // All but one of its tokens were in the cache.
  const StepCandidate cached[] = {{8000, 1, 0, {}}, {1, 2, 640, {}, true}};
  EXPECT_THAT(plan_step(cached, 256, 64), ElementsAre(31, 1));
}

TEST(BatchPlan, TheStepOfAFirstTokenIsAtMostAnEighthBesideIt) {
  for (int64_t budget : {64, 256, 512, 1024}) {
    for (int64_t own = 1; own < budget - budget / 16; ++own) {
      for (int64_t speaking = 0; speaking < 4; ++speaking) {
        std::vector<StepCandidate> list = {{8000, 1, 512, {}}, {9000, 3, 0, {}}};
        list.push_back({own, 2, own == 1 ? 64 : 0, {}, true});
        for (int64_t i = 0; i < speaking; ++i) list.push_back({1, 4, 100, {}});
        const std::vector<int64_t> shares = plan_step(list, budget, 64);
        if (own > budget - speaking - budget / 16) continue;
        EXPECT_EQ(shares[2], own) << "ends, of " << budget;
        EXPECT_GE(shares[0], std::max<int64_t>(1, budget / 16)) << "does not starve";
        EXPECT_LE(shares[0] + shares[1], budget / 8) << own << " of " << budget;
      }
    }
  }
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

TEST(BatchPlan, LargeSharesEndWhereTheyHadBetter) {
  const StepCandidate list[] = {{1, 5, 10, {}}, {8000, 1, 100, {}}};
  EXPECT_THAT(plan_step(list, 1024, 64, 64), ElementsAre(1, 988)) << "at 1088";
  const StepCandidate last[] = {{1, 5, 10, {}}, {1000, 1, 100, {}}};
  EXPECT_THAT(plan_step(last, 1024, 64, 64), ElementsAre(1, 1000)) << "to its end";
  EXPECT_THAT(plan_step(list, 512, 64, 64), ElementsAre(1, 511)) << "too small";
}

TEST(BatchPlan, StepsInFlightComputeTheirBlocksAlone) {
  const uint64_t a[] = {1, 2, 3}, b[] = {1, 2, 9};
  // The first prompt has its first block in flight and goes on; the second waits for that block.
  const StepCandidate ahead[] = {{128, 1, 64, a, true, 64}, {190, 2, 0, b, true}};
  EXPECT_THAT(plan_step(ahead, 256, 64), ElementsAre(128, 0));
  // Nor is it a step of its own for one that has no turn.
  const StepCandidate other[] = {{0, 1, 64, a, false, 64}, {190, 2, 0, b, true}};
  EXPECT_THAT(plan_step(other, 256, 64), ElementsAre(0, 0));
}

TEST(BatchPlan, NeverGivesMoreThanThereIs) {
  const StepCandidate list[] = {{3, 1, 0, {}}, {1, 2, 7, {}}, {2, 3, 0, {}}};
  EXPECT_THAT(plan_step(list, 3, 64), ElementsAre(1, 1, 1));
  EXPECT_THAT(plan_step(list, 100, 64), ElementsAre(3, 1, 2));
  EXPECT_TRUE(plan_step({}, 10, 64).empty());
}

// Short prompts of one key, however many, leave another key its part.
TEST(BatchPlan, PromptsOfKeysShareTheStep) {
  std::vector<StepCandidate> list;
  for (uint64_t i = 0; i < 12; ++i) list.push_back({50, i, 0, {}, true, 0, "a"});
  list.push_back({100, 99, 0, {}, true, 0, "b"});
  const std::vector<int64_t> shares = plan_step(list, 256, 64);
  EXPECT_EQ(shares.back(), 100) << "ends with this step, though twelve shorter ones are older";
  // What one does not need the other gets, and alone it gets all.
  const StepCandidate two[] = {{9000, 1, 0, {}, true, 0, "a"}, {9000, 2, 0, {}, true, 0, "b"}};
  EXPECT_THAT(plan_step(two, 256, 64), ElementsAre(128, 128));
  const StepCandidate weighted[] = {{9000, 1, 0, {}, true, 0, "a", 3},
                                    {9000, 2, 0, {}, true, 0, "b", 1}};
  EXPECT_THAT(plan_step(weighted, 256, 64), ElementsAre(192, 64));
  const StepCandidate three[] = {
      {9000, 1, 0, {}, true, 0, "a"}, {9000, 2, 0, {}, true, 0, "a"}, {20, 3, 0, {}, true, 0, "b"}};
  EXPECT_THAT(plan_step(three, 256, 64), ElementsAre(16, 0, 20));
}

}  // namespace
}  // namespace ktx::runtime

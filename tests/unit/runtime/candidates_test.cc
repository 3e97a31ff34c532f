#include "lib/runtime/sampling/candidates.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace ktx::runtime {
namespace {

using ::testing::ElementsAre;

Candidates of(std::initializer_list<double> probabilities) {
  Candidates candidates;
  for (const double p : probabilities) {
    candidates.push_back(
        {static_cast<int32_t>(candidates.size()), static_cast<float>(std::log(p))});
  }
  return candidates;
}

std::vector<int32_t> ids(const Candidates& candidates) {
  std::vector<int32_t> list;
  for (const Candidate& candidate : candidates) list.push_back(candidate.id);
  return list;
}

TEST(Candidates, TypicalKeepsWhatIsClosestToTheEntropy) {
  // Entropy 1.280 nats; surprises 0.916, 1.204, 1.609, 2.303: 0.3 is closest, then 0.2, 0.4, 0.1.
  Candidates candidates = of({0.4, 0.3, 0.2, 0.1});
  keep_typical(candidates, 0.29f);
  EXPECT_THAT(ids(candidates), ElementsAre(1));
  candidates = of({0.4, 0.3, 0.2, 0.1});
  keep_typical(candidates, 0.5f);
  EXPECT_THAT(ids(candidates), ElementsAre(1, 2));
  candidates = of({0.4, 0.3, 0.2, 0.1});
  keep_typical(candidates, 0.9f);
  EXPECT_THAT(ids(candidates), ElementsAre(0, 1, 2));
  // The likeliest token is not typical where the others are many.
  candidates = of({0.5, 0.1, 0.1, 0.1, 0.1, 0.1});
  keep_typical(candidates, 0.01f);
  EXPECT_EQ(candidates.size(), 1u);
  EXPECT_NE(candidates[0].id, 5);
}

TEST(Candidates, XtcLeavesTheLastOfTheTopChoices) {
  Candidates candidates = of({0.1, 0.4, 0.3, 0.2});
  exclude_top_choices(candidates, 0.15f);
  EXPECT_THAT(ids(candidates), ElementsAre(3, 0));
  candidates = of({0.1, 0.4, 0.3, 0.2});
  exclude_top_choices(candidates, 0.35f);  // one alone is no choice
  EXPECT_THAT(ids(candidates), ElementsAre(1, 2, 3, 0));
}

TEST(Candidates, SigmaCountsFromTheBest) {
  // Mean 0, standard deviation 2.
  const float inf = std::numeric_limits<float>::infinity();
  EXPECT_FLOAT_EQ(sigma_bound(std::vector<float>{2, -2, 2, -2, -inf}, 1.5f), 2 - 3.0f);
  EXPECT_FLOAT_EQ(sigma_bound(std::vector<float>{-inf}, 1), -inf);
}

TEST(Candidates, MirostatsBoundIsInBits) {
  Candidates candidates = of({0.5, 0.25, 0.125, 0.125});
  keep_unsurprising(candidates, 1, 2.01);
  EXPECT_THAT(ids(candidates), ElementsAre(0, 1));
  keep_unsurprising(candidates, 1, 0);  // one always stays
  EXPECT_THAT(ids(candidates), ElementsAre(0));
}

TEST(Candidates, TheTemperatureFollowsTheEntropy) {
  EXPECT_FLOAT_EQ(dynamic_temperature(of({0.25, 0.25, 0.25, 0.25}), 1, 0.5f, 1), 1.5f);
  EXPECT_NEAR(dynamic_temperature(of({1.0 - 3e-9, 1e-9, 1e-9, 1e-9}), 1, 0.5f, 1), 0.5f, 1e-3);
  // Half of the greatest entropy: two equal ones of four.
  const double part = 0.5;
  EXPECT_NEAR(dynamic_temperature(of({0.5, 0.5, 1e-12, 1e-12}), 1, 0.5f, 2),
              0.5 + std::pow(part, 2), 1e-3);
  EXPECT_GT(dynamic_temperature(of({1.0}), 1, 2, 1), 0);
}

}  // namespace
}  // namespace ktx::runtime

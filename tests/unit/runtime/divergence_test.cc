#include "lib/runtime/quality/divergence.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace ktx::runtime {
namespace {

std::vector<float> logprobs_of(const std::vector<float>& logits) {
  std::vector<float> out(logits.size());
  EXPECT_TRUE(all_logprobs(logits, out));
  return out;
}

TEST(Divergence, IsThatOfItsFormula) {
  // p_base = 1/2, 1/4, 1/4; p = 1/4, 1/4, 1/2, up to a constant of the logits.
  const float two = std::log(2.0f);
  const std::vector<float> base = logprobs_of({3 + two, 3, 3});
  const std::vector<float> logits = {-7, -7, -7 + two};
  const auto place = divergence(base, logits, 0);
  ASSERT_TRUE(place);
  EXPECT_NEAR(place->logprob, std::log(0.25), 1e-6);
  EXPECT_NEAR(place->base_logprob, std::log(0.5), 1e-6);
  EXPECT_NEAR(place->kld, 0.5 * std::log(2) + 0.25 * std::log(0.5), 1e-6);
  EXPECT_NEAR(place->delta_p, -0.25, 1e-6);
  EXPECT_FALSE(place->same_top);
  const auto itself = divergence(base, {{3 + two, 3, 3}}, 2);
  EXPECT_NEAR(itself->kld, 0, 1e-7);
  EXPECT_TRUE(itself->same_top);
}

// As llama.cpp has it, whose files round these to one value.
TEST(Divergence, LeavesOutWhatTheBaseThinksHardlyPossible) {
  const std::vector<float> base = logprobs_of({0, -17});
  const auto place = divergence(base, {{0, 0}}, 0);
  EXPECT_NEAR(place->kld, std::exp(double{base[0]}) * (base[0] + std::log(2)), 1e-6);
}

TEST(Divergence, RefusesLogitsThatAreNoNumbers) {
  const std::vector<float> base = {-1, -1};
  for (const float bad : {std::nanf(""), std::numeric_limits<float>::infinity()}) {
    EXPECT_FALSE(divergence(base, {{0, bad}}, 0));
    std::vector<float> out(2);
    EXPECT_FALSE(all_logprobs({{bad, 0}}, out));
  }
}

TEST(DivergenceSum, HasTheStatisticsOfItsPlaces) {
  DivergenceSum sum;
  for (int i = 0; i < 21; ++i) {
    sum.add({.logprob = -1.0 - 0.1 * i,
             .base_logprob = -1.0 - 0.1 * i + 0.5,
             .kld = 0.01 * i,
             .delta_p = i % 2 == 0 ? 0.1 : -0.1,
             .same_top = i % 3 == 0});
  }
  EXPECT_EQ(sum.count(), 21);
  const Estimate ppl = perplexity(sum.negative_logprobs());
  EXPECT_NEAR(ppl.value, std::exp(2.0), 1e-9);
  // Variance of 0.1 * (0..20): 0.01 * (21^2 - 1) / 12.
  EXPECT_NEAR(ppl.error, std::exp(2.0) * std::sqrt(0.01 * 440 / 12 / 20), 1e-9);
  EXPECT_NEAR(sum.mean_kld().value, 0.1, 1e-9);
  EXPECT_NEAR(sum.kld_percentile(0.5), 0.1, 1e-6);
  EXPECT_NEAR(sum.kld_percentile(0), 0, 1e-6);
  EXPECT_NEAR(sum.kld_percentile(1), 0.2, 1e-6);
  EXPECT_NEAR(sum.kld_percentile(0.975), 0.195, 1e-6);  // halfway from place 19 to 20
  EXPECT_NEAR(sum.same_top().value, 7.0 / 21, 1e-9);
  EXPECT_NEAR(sum.same_top().error, std::sqrt(7.0 / 21 * (14.0 / 21) / 20), 1e-9);
  EXPECT_NEAR(sum.rms_delta_p().value, 0.1, 1e-9);
  EXPECT_NEAR(sum.mean_delta_p().value, 0.1 / 21, 1e-9);
  // Both lose the same at each place: the difference is certain.
  EXPECT_NEAR(sum.log_ratio().value, 0.5, 1e-9);
  EXPECT_NEAR(sum.log_ratio().error, 0, 1e-6);
}

TEST(DivergenceSum, OfNothingIsZero) {
  const DivergenceSum sum;
  EXPECT_EQ(sum.same_top().value, 0);
  EXPECT_EQ(sum.kld_percentile(0.5), 0);
  EXPECT_EQ(sum.rms_delta_p().error, 0);
  EXPECT_EQ(sum.log_ratio().error, 0);
}

}  // namespace
}  // namespace ktx::runtime

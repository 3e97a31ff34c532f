#include "lib/runtime/sampling/sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <random>
#include <set>

namespace ktx::runtime {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

SamplingOptions plain() {
  SamplingOptions options;
  options.temperature = 1;
  options.top_k = 0;
  options.top_p = 1;
  options.min_p = 0;
  return options;
}

std::vector<float> logs(std::initializer_list<double> probabilities) {
  std::vector<float> logits;
  for (double p : probabilities) logits.push_back(static_cast<float>(std::log(p)));
  return logits;
}

std::map<int32_t, int> draw(const SamplingOptions& options, const std::vector<float>& logits,
                            int count, std::vector<int32_t> history = {}) {
  Sampler sampler = Sampler::create(options, logits.size()).take();
  std::map<int32_t, int> counts;
  for (int i = 0; i < count; ++i) ++counts[sampler.sample(logits, history).take()];
  return counts;
}

// Pearson's chi-square against the expected probabilities.
double chi_square(const std::map<int32_t, int>& counts, const std::map<int32_t, double>& expected,
                  int total) {
  double sum = 0;
  for (const auto& [id, p] : expected) {
    const double found = counts.count(id) ? counts.at(id) : 0;
    sum += (found - p * total) * (found - p * total) / (p * total);
  }
  for (const auto& [id, count] : counts) EXPECT_TRUE(expected.count(id)) << "token " << id;
  return sum;
}

TEST(Random, GivesTheDocumentedNumbers) {
  // From the definition, computed apart.
  Random random(0);
  EXPECT_EQ(random.next(), 0x99ec5f36cb75f2b4u);
  EXPECT_EQ(random.next(), 0xbf6e1f784956452au);
  Random again(0);
  EXPECT_EQ(again.uniform(), static_cast<double>(0x99ec5f36cb75f2b4u >> 11) * 0x1p-53);
}

TEST(Sampler, GreedyTakesTheLowestOfEquals) {
  EXPECT_EQ(draw(greedy_sampling(), {1, 3, 2, 3}, 1), (std::map<int32_t, int>{{1, 1}}));
}

TEST(Sampler, DrawsFromTheSoftmax) {
  const auto logits = logs({0.5, 0.25, 0.15, 0.1});
  const auto counts = draw(plain(), logits, 20000);
  // 3 degrees of freedom: 16.3 is exceeded once in a thousand seeds.
  EXPECT_LT(chi_square(counts, {{0, 0.5}, {1, 0.25}, {2, 0.15}, {3, 0.1}}, 20000), 16.3);
}

TEST(Sampler, DividesByTheTemperature) {
  SamplingOptions options = plain();
  options.temperature = 0.5f;
  const auto counts = draw(options, logs({0.5, 0.25, 0.25}), 20000);
  // Squares of the probabilities: 4, 1, 1.
  EXPECT_LT(chi_square(counts, {{0, 4 / 6.0}, {1, 1 / 6.0}, {2, 1 / 6.0}}, 20000), 13.8);
}

TEST(Sampler, TopKKeepsTheBest) {
  SamplingOptions options = plain();
  options.top_k = 2;
  const auto counts = draw(options, logs({0.1, 0.3, 0.2, 0.4}), 10000);
  EXPECT_LT(chi_square(counts, {{1, 3 / 7.0}, {3, 4 / 7.0}}, 10000), 10.8);
}

TEST(Sampler, TopKAgreesWithSorting) {
  std::vector<float> logits(1000);
  Random random(7);
  for (float& logit : logits) logit = static_cast<float>(random.next() % 50);  // many equals
  std::vector<int32_t> ids(logits.size());
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int32_t>(i);
  std::stable_sort(ids.begin(), ids.end(),
                   [&](int32_t a, int32_t b) { return logits[a] > logits[b]; });
  SamplingOptions options = plain();
  options.top_k = 30;
  options.temperature = 100;  // nearly flat: every kept token comes up
  std::set<int32_t> drawn;
  for (const auto& [id, count] : draw(options, logits, 3000)) drawn.insert(id);
  EXPECT_EQ(drawn, std::set<int32_t>(ids.begin(), ids.begin() + 30));
}

// The best `count` as a GPU gives them.
std::vector<TokenLogit> best_of(const std::vector<float>& logits, int32_t count) {
  std::vector<TokenLogit> all;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (logits[i] > -kInf) all.push_back({logits[i], static_cast<int32_t>(i)});
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const TokenLogit& a, const TokenLogit& b) { return a.logit > b.logit; });
  all.resize(std::min<size_t>(all.size(), count));
  return all;
}

TEST(Sampler, TheBestLogitsGiveTheSameTokensAsAll) {
  Random random(11);
  for (const float temperature : {0.0f, 0.3f, 1.5f}) {
    for (const int32_t top_k : {1, 3, 40, 128}) {
      for (const auto& [top_p, min_p] : {std::pair(1.0f, 0.0f), {0.7f, 0.0f}, {0.9f, 0.1f}}) {
        SamplingOptions options;
        options.temperature = temperature;
        options.top_k = top_k;
        options.top_p = top_p;
        options.min_p = min_p;
        options.seed = random.next();
        Sampler whole = Sampler::create(options, 500).take();
        Sampler few = Sampler::create(options, 500).take();
        const int32_t needed = few.best_needed();
        ASSERT_EQ(needed, temperature == 0 ? 1 : top_k);
        for (int round = 0; round < 20; ++round) {
          std::vector<float> logits(500);
          for (float& logit : logits) logit = static_cast<float>(random.next() % 40) * 0.25f;
          logits[random.next() % 500] = -kInf;
          const auto best = best_of(logits, round % 2 ? needed : 128);  // more do no harm
          ASSERT_EQ(few.sample({best, 0}).take(), whole.sample(logits, {}).take());
        }
        EXPECT_EQ(few.state(), whole.state());
      }
    }
  }
}

TEST(Sampler, WhatLooksAtAllLogitsNeedsThem) {
  const auto needed = [](auto&& change) {
    SamplingOptions options;
    change(options);
    return Sampler::create(options, 1000).take().best_needed();
  };
  EXPECT_EQ(needed([](SamplingOptions&) {}), 40);
  EXPECT_EQ(needed([](SamplingOptions& o) { o.top_k = 0; }), -1);
  EXPECT_EQ(needed([](SamplingOptions& o) { o.top_k = 129; }), -1);
  EXPECT_EQ(needed([](SamplingOptions& o) { o.repetition_penalty = 1.1f; }), -1);
  EXPECT_EQ(needed([](SamplingOptions& o) { o.presence_penalty = 0.5f; }), -1);
  EXPECT_EQ(needed([](SamplingOptions& o) { o.frequency_penalty = 0.5f; }), -1);
  EXPECT_EQ(needed([](SamplingOptions& o) { o.logit_bias = {{3, 1.0f}}; }), -1);
  EXPECT_EQ(needed([](SamplingOptions& o) { o.dry.multiplier = 0.8f; }), -1);
  EXPECT_EQ(needed([](SamplingOptions& o) { o.top_n_sigma = 1; }), -1);
  EXPECT_EQ(needed([](SamplingOptions& o) { o.mirostat = true; }), -1);
  EXPECT_EQ(needed([](SamplingOptions& o) { o.typical_p = 0.9f; }), 40);
  SamplingOptions as_many;  // all that there are stay in order of their ids
  as_many.top_k = 20;
  EXPECT_EQ(Sampler::create(as_many, 20).take().best_needed(), -1);
}

TEST(Sampler, UnsoundOrForbiddenBestLogitsAreErrors) {
  Sampler sampler = Sampler::create(greedy_sampling(), 10).take();
  const std::vector<TokenLogit> best = {{2.0f, 4}};
  EXPECT_THAT(sampler.sample({best, kNan}).error().message, HasSubstr("--check-finite"));
  EXPECT_THAT(sampler.sample({{}, -kInf}).error().message, HasSubstr("no token is allowed"));
}

TEST(Logprobs, OfTheBestAreThoseOfAll) {
  const std::vector<float> logits = {1, 5, 2, 5, -kInf, 0};
  double sum = 0;
  for (float logit : logits) sum += std::exp(double{logit});
  const auto best = best_of(logits, 4);
  const Logprobs few = logprobs({best, std::log(sum)}, 3, 3).take();
  const Logprobs all = logprobs(logits, 3, 3).take();
  EXPECT_NEAR(few.logprob, all.logprob, 1e-12);
  ASSERT_EQ(few.top.size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(few.top[i].id, all.top[i].id);
    EXPECT_NEAR(few.top[i].logprob, all.top[i].logprob, 1e-12);
  }
}

TEST(Sampler, TopPKeepsTheSmallestSetThatReachesIt) {
  SamplingOptions options = plain();
  options.top_p = 0.65f;
  const auto counts = draw(options, logs({0.1, 0.3, 0.2, 0.4}), 10000);
  EXPECT_LT(chi_square(counts, {{1, 3 / 7.0}, {3, 4 / 7.0}}, 10000), 10.8);
  options.top_p = 0;
  EXPECT_EQ(draw(options, logs({0.1, 0.3, 0.2, 0.4}), 10).size(), 1u);
}

TEST(Sampler, TopPWorksOnFlatDistributions) {
  SamplingOptions options = plain();
  options.top_p = 0.5f;
  const std::vector<float> flat(300, 0.0f);
  const auto counts = draw(options, flat, 5000);
  EXPECT_NEAR(counts.size(), 150, 1);
  EXPECT_LT(counts.rbegin()->first, 152) << "of equals the lowest ids stay";
}

TEST(Sampler, MinPIsRelativeToTheBest) {
  SamplingOptions options = plain();
  options.min_p = 0.6f;
  const auto counts = draw(options, logs({0.1, 0.3, 0.2, 0.4}), 10000);
  EXPECT_LT(chi_square(counts, {{1, 3 / 7.0}, {3, 4 / 7.0}}, 10000), 10.8);
}

TEST(Sampler, TheSameSeedGivesTheSameTokens) {
  const auto logits = logs({0.2, 0.2, 0.2, 0.2, 0.2});
  SamplingOptions options = plain();
  options.seed = 42;
  std::vector<int32_t> first;
  Sampler sampler = Sampler::create(options, 5).take();
  for (int i = 0; i < 12; ++i) first.push_back(sampler.sample(logits, {}).take());
  EXPECT_THAT(first, ElementsAre(0, 1, 3, 4, 4, 3, 3, 4, 3, 2, 3, 1));
}

TEST(Sampler, PenaltiesCountTheWindow) {
  SamplingOptions options = greedy_sampling();
  options.repetition_penalty = 2;
  const std::vector<float> logits = {3, 2, -1};
  EXPECT_EQ(draw(options, logits, 1, {0}), (std::map<int32_t, int>{{1, 1}}));
  options.penalty_window = 2;
  EXPECT_EQ(draw(options, logits, 1, {0, 2, 2}), (std::map<int32_t, int>{{0, 1}}));
  options.penalty_window = -1;
  EXPECT_EQ(draw(options, logits, 1, {0, 2, 2}), (std::map<int32_t, int>{{1, 1}}));

  options = greedy_sampling();
  options.presence_penalty = 1.5f;
  EXPECT_EQ(draw(options, logits, 1, {0, 0, 99, -5}), (std::map<int32_t, int>{{1, 1}}));
  options.presence_penalty = 0;
  options.frequency_penalty = 0.6f;
  EXPECT_EQ(draw(options, logits, 1, {0}), (std::map<int32_t, int>{{0, 1}}));
  EXPECT_EQ(draw(options, logits, 1, {0, 0}), (std::map<int32_t, int>{{1, 1}}));
}

TEST(Sampler, AppliesBiasAndLeavesWhatIsAllowed) {
  SamplingOptions options = greedy_sampling();
  options.logit_bias = {{2, 10.0f}};
  Sampler sampler = Sampler::create(options, 3).take();
  const std::vector<float> logits = {3, 2, 1};
  EXPECT_EQ(sampler.sample(logits, {}).take(), 2);
  const uint32_t no_two = 3, nothing = 0;
  EXPECT_EQ(sampler.sample(logits, {}, TokenBits(&no_two, 1)).take(), 0);
  Sampler greedy = Sampler::create(greedy_sampling(), 3).take();
  Sampler drawn = Sampler::create({}, 3).take();
  for (Sampler* each : {&sampler, &greedy, &drawn}) {
    for (const TokenBits& bits : {TokenBits(&nothing, 1), TokenBits()}) {
      const auto none = each->sample(logits, {}, bits);
      ASSERT_FALSE(none.ok());
      EXPECT_THAT(none.error().message, HasSubstr("no token is allowed"));
    }
  }
}

TEST(Sampler, TheBestAllowedTokenIsTheFirstOfTheBestWhereTheOthersAreForbidden) {
  std::mt19937 random(5);
  for (const size_t size : {1, 31, 33, 2048, 2049, 7000}) {
    for (const uint32_t one_in : {1, 2, 50, 2000}) {
      std::vector<float> logits(size);
      for (float& logit : logits) logit = static_cast<float>(random() % 16);  // many equal ones
      std::vector<uint32_t> allowed((size + 31) / 32 - (size > 4000 ? 3 : 0));
      for (size_t id = 0; id < allowed.size() * 32; ++id) {
        if (random() % one_in == 0) allowed[id / 32] |= 1u << (id % 32);
      }
      std::vector<float> masked = logits;
      forbid_others(allowed, masked);
      const auto expected = best_token(masked), got = best_token(logits, allowed);
      ASSERT_EQ(got.ok(), expected.ok());
      if (got.ok()) {
        EXPECT_EQ(*got, *expected) << size << " tokens, one in " << one_in;
      }
    }
  }
}

// Distributions of the further methods: expected probabilities computed by hand from their papers'
// definitions (candidates_test.cc has the sets that stay).
TEST(Sampler, TypicalDrawsFromWhatStays) {
  SamplingOptions options = plain();
  options.typical_p = 0.5f;
  const auto counts = draw(options, logs({0.4, 0.3, 0.2, 0.1}), 10000);
  EXPECT_LT(chi_square(counts, {{1, 0.6}, {2, 0.4}}, 10000), 10.8);
}

TEST(Sampler, XtcExcludesAsOftenAsItSays) {
  SamplingOptions options = plain();
  options.xtc_probability = 0.5f;
  options.xtc_threshold = 0.25f;
  // Half of the time 0.4 goes, and 0.3, 0.2 and 0.1 share the rest.
  const auto counts = draw(options, logs({0.4, 0.3, 0.2, 0.1}), 20000);
  const std::map<int32_t, double> expected = {
      {0, 0.2}, {1, 0.15 + 0.25}, {2, 0.1 + 0.5 / 3}, {3, 0.05 + 0.5 / 6}};
  EXPECT_LT(chi_square(counts, expected, 20000), 16.3);
}

TEST(Sampler, TopNSigmaDrawsFromWhatStays) {
  SamplingOptions options = plain();
  options.top_n_sigma = 1;
  // Logits 3, 2, -1, -4: mean 0, deviation 2.74; from 0.26 on.
  const auto counts = draw(options, {3, 2, -1, -4}, 10000);
  const double e = std::exp(1.0);
  EXPECT_LT(chi_square(counts, {{0, e / (1 + e)}, {1, 1 / (1 + e)}}, 10000), 10.8);
}

TEST(Sampler, TheDynamicTemperatureIsThatOfTheEntropy) {
  SamplingOptions options = plain();
  options.dynamic_range = 0.5f;
  const std::vector<double> p = {0.7, 0.2, 0.1};
  double entropy = 0;
  for (const double each : p) entropy -= each * std::log(each);
  const double temperature = 0.5 + entropy / std::log(3.0);
  std::map<int32_t, double> expected;
  double total = 0;
  for (size_t i = 0; i < p.size(); ++i) total += expected[i] = std::pow(p[i], 1 / temperature);
  for (auto& [id, share] : expected) share /= total;
  EXPECT_LT(chi_square(draw(options, logs({0.7, 0.2, 0.1}), 20000), expected, 20000), 13.8);
}

TEST(Sampler, MirostatHoldsTheSurprise) {
  // Zipf's law over 2000 tokens, 8.1 bits of entropy: the mean surprise comes to tau.
  std::vector<float> logits(2000);
  std::vector<double> bits(logits.size());
  double total = 0;
  for (size_t i = 0; i < logits.size(); ++i) total += 1.0 / static_cast<double>(i + 1);
  for (size_t i = 0; i < logits.size(); ++i) {
    logits[i] = -std::log(static_cast<float>(i + 1));
    bits[i] = std::log2(static_cast<double>(i + 1) * total);
  }
  for (const float tau : {2.0f, 4.0f}) {
    SamplingOptions options = plain();
    options.mirostat = true;
    options.mirostat_tau = tau;
    Sampler sampler = Sampler::create(options, logits.size()).take();
    double sum = 0;
    constexpr int kCount = 4000;
    for (int i = 0; i < kCount + 200; ++i) {
      const int32_t id = sampler.sample(logits, {}).take();
      // Among those that were left; the bound follows it.
      if (i >= 200) sum -= sampler.drawn_from(id, 0).logprob / std::log(2.0);
    }
    EXPECT_NEAR(sum / kCount, tau, 0.1);
    // A saved sampler goes on with the same bound.
    Sampler other = Sampler::create(options, logits.size()).take();
    other.set_state(sampler.state());
    for (int i = 0; i < 50; ++i) {
      ASSERT_EQ(other.sample(logits, {}).take(), sampler.sample(logits, {}).take());
    }
  }
}

TEST(Sampler, DryLowersWhatWouldRepeat) {
  SamplingOptions options = plain();
  options.dry.multiplier = std::log(4.0f);
  const std::vector<float> logits = logs({0.5, 0.25, 0.25});
  const auto counts = draw(options, logits, 10000, {1, 2, 0, 1, 2});
  // A quarter of 0.5 is left of token 0.
  EXPECT_LT(chi_square(counts, {{0, 0.2}, {1, 0.4}, {2, 0.4}}, 10000), 13.8);
}

TEST(Sampler, TellsWhatItDrewFrom) {
  SamplingOptions options = plain();
  options.top_k = 2;
  Sampler sampler = Sampler::create(options, 4).take();
  const int32_t id = sampler.sample(logs({0.1, 0.3, 0.2, 0.4}), {}).take();
  const Logprobs told = sampler.drawn_from(id, 10);
  ASSERT_EQ(told.top.size(), 2u);
  EXPECT_EQ(told.top[0].id, 3);
  EXPECT_NEAR(std::exp(told.top[0].logprob), 4 / 7.0, 1e-6);
  EXPECT_NEAR(std::exp(told.logprob), id == 3 ? 4 / 7.0 : 3 / 7.0, 1e-6);
  Sampler greedy = Sampler::create(greedy_sampling(), 2).take();
  EXPECT_EQ(greedy.drawn_from(greedy.sample(logs({0.2, 0.8}), {}).take(), 3).logprob, 0);
}

TEST(Sampler, ABiasOfMinusInfinityForbids) {
  SamplingOptions options = plain();
  options.logit_bias = {{0, -kInf}};
  EXPECT_EQ(draw(options, logs({0.9, 0.1}), 100), (std::map<int32_t, int>{{1, 100}}));
}

TEST(Sampler, RefusesNonsense) {
  const auto error = [](auto change) {
    SamplingOptions options = plain();
    change(options);
    const auto sampler = Sampler::create(options, 10);
    return sampler.ok() ? std::string() : sampler.error().message;
  };
  EXPECT_THAT(error([](auto& o) { o.temperature = kNan; }), HasSubstr("temperature is nan"));
  EXPECT_THAT(error([](auto& o) { o.temperature = -1; }), HasSubstr("temperature is -1"));
  EXPECT_THAT(error([](auto& o) { o.temperature = kInf; }), HasSubstr("temperature is inf"));
  EXPECT_THAT(error([](auto& o) { o.top_k = -2; }), HasSubstr("top-k is -2"));
  EXPECT_THAT(error([](auto& o) { o.top_p = 1.5f; }), HasSubstr("top-p is 1.5"));
  EXPECT_THAT(error([](auto& o) { o.min_p = kNan; }), HasSubstr("min-p"));
  EXPECT_THAT(error([](auto& o) { o.repetition_penalty = 0; }), HasSubstr("repetition penalty"));
  EXPECT_THAT(error([](auto& o) { o.frequency_penalty = kInf; }), HasSubstr("frequency penalty"));
  EXPECT_THAT(error([](auto& o) { o.penalty_window = -2; }), HasSubstr("penalty window"));
  EXPECT_THAT(error([](auto& o) { o.typical_p = 2; }), HasSubstr("typical-p is 2"));
  EXPECT_THAT(error([](auto& o) { o.xtc_probability = -1; }), HasSubstr("XTC probability is -1"));
  EXPECT_THAT(error([](auto& o) { o.dry.base = 0.5f; }), HasSubstr("DRY base is 0.5"));
  EXPECT_THAT(error([](auto& o) { o.dry.allowed_length = 0; }), HasSubstr("DRY allowed length"));
  EXPECT_THAT(error([](auto& o) { o.mirostat_tau = kNan; }), HasSubstr("mirostat tau is nan"));
  EXPECT_THAT(error([](auto& o) { o.logit_bias = {{10, 1.0f}}; }), HasSubstr("names token 10"));
  EXPECT_THAT(error([](auto& o) { o.logit_bias = {{1, kNan}}; }), HasSubstr("logit bias is nan"));
}

TEST(Sampler, NamesNanLogits) {
  Sampler sampler = Sampler::create(greedy_sampling(), 3).take();
  const std::vector<float> logits = {0, kNan, 1};
  const auto id = sampler.sample(logits, {});
  ASSERT_FALSE(id.ok());
  EXPECT_THAT(id.error().message, HasSubstr("NaN (not a number) as the logit of token 1"));
  const std::vector<float> infinite = {0, 1, kInf};
  EXPECT_FALSE(sampler.sample(infinite, {}).ok());
  const uint32_t others = 5;
  EXPECT_FALSE(sampler.sample(logits, {}, TokenBits(&others, 1)).ok()) << "not allowed itself";
}

TEST(Logprobs, AreTheLogSoftmaxOfRawLogits) {
  const auto result = logprobs(logs({0.1, 0.4, 0.4, 0.1}), 3, 3).take();
  EXPECT_NEAR(result.logprob, std::log(0.1), 1e-6);
  ASSERT_EQ(result.top.size(), 3u);
  EXPECT_EQ(result.top[0].id, 1);
  EXPECT_EQ(result.top[1].id, 2);
  EXPECT_EQ(result.top[2].id, 0);
  EXPECT_NEAR(result.top[0].logprob, std::log(0.4), 1e-6);
  EXPECT_EQ(logprobs(logs({0.5, 0.5}), 0, 10).take().top.size(), 2u);
  EXPECT_EQ(logprobs(logs({0.5, 0.5}), 0, -1).take().top.size(), 0u);
  // Far from zero nothing overflows.
  EXPECT_NEAR(logprobs(std::vector<float>{30000, 30000}, 0, 1).take().logprob, -std::log(2.0),
              1e-12);
}

// Wherever it stands, also at the edges of what is looked at together.
TEST(BestToken, IsTheFirstOfTheLargest) {
  for (const size_t size : {1, 15, 16, 17, 2047, 2048, 2049, 5000}) {
    std::vector<float> logits(size, -1.0f);
    for (const size_t at : {size_t{0}, size / 2, size - 1}) {
      logits[at] = 2.0f;
      const Result<int32_t> best = best_token(logits);
      ASSERT_TRUE(best.ok());
      EXPECT_EQ(*best, static_cast<int32_t>(at)) << size;
      logits[size - 1] = 2.0f;  // another one as large behind it
      EXPECT_EQ(*best_token(logits), static_cast<int32_t>(at)) << size;
      logits[size - 1] = std::nanf("");
      EXPECT_FALSE(best_token(logits).ok()) << size;
      std::fill(logits.begin(), logits.end(), -1.0f);
    }
    std::fill(logits.begin(), logits.end(), -std::numeric_limits<float>::infinity());
    EXPECT_FALSE(best_token(logits).ok());
  }
}

}  // namespace
}  // namespace ktx::runtime

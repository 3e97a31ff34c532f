#include "lib/runtime/quality/replay_answers.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace ktx::runtime {
namespace {

constexpr size_t kVocabulary = 100;

// A vocabulary whose likeliest tokens are 0, 1, 2 ..., as far as `spread` parts them.
std::vector<float> logits_of(double top, double spread) {
  std::vector<float> logits;
  for (size_t i = 0; i < kVocabulary; ++i) {
    logits.push_back(static_cast<float>(top - spread * std::sqrt(static_cast<double>(i))));
  }
  return logits;
}

// With the digits that a plan keeps: eight.
double eight_digits(double value) {
  const double unit = std::pow(10, std::floor(std::log10(std::abs(value))) - 7);
  return std::round(value / unit) * unit;
}

plan::SelfTestAnswer answer_of(const std::vector<float>& logits) {
  plan::SelfTestAnswer answer;
  double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - logits[0]);
  for (int32_t i = 0; i < 16; ++i) {
    answer.ids.push_back(i);
    answer.logits.push_back(static_cast<float>(eight_digits(logits[static_cast<size_t>(i)])));
  }
  answer.log_sum = eight_digits(logits[0] + std::log(sum));
  return answer;
}

// However sure a model is, and however large its logits are.
TEST(DivergenceOf, RoundedAnswersIsNothing) {
  for (const double top : {0.5, 9.1234567, 34.567891, 190.12345, 987.65432, 20123.456}) {
    for (const double spread : {0.1, 1.0, 3.0, 20.0, 140.0}) {
      const std::vector<float> logits = logits_of(top, spread);
      // Another order of sums.
      std::vector<float> own = logits;
      for (size_t i = 0; i < own.size(); ++i) {
        own[i] = std::nextafter(own[i], i % 3 == 0 ? INFINITY : -INFINITY);
      }
      const double most = 1e-8 * std::max(1.0, top);
      EXPECT_LT(divergence_of(answer_of(logits), logits), most) << top << " " << spread;
      EXPECT_LT(divergence_of(answer_of(logits), own), most) << top << " " << spread;
    }
  }
}

TEST(DivergenceOf, OtherAnswersIsTheirs) {
  for (const double top : {9.1, 190.1}) {
    for (const double spread : {0.1, 3.0, 20.0}) {
      const std::vector<float> logits = logits_of(top, spread);
      std::vector<float> own = logits;
      own[50] = logits[0];  // none of the sixteen
      EXPECT_GT(divergence_of(answer_of(logits), own), 1e-5) << top << " " << spread;
      own = logits;
      own[1] = logits[0];
      EXPECT_GT(divergence_of(answer_of(logits), own), 1e-5) << top << " " << spread;
    }
  }
  // p is 2/3 and 1/3, and as much for each of two.
  plan::SelfTestAnswer two{{0, 1}, {1, static_cast<float>(1 - std::log(2.0))}, 0};
  two.log_sum = 1 + std::log(1.5);
  EXPECT_NEAR(divergence_of(two, std::vector<float>{3, 3}),
              std::log(2.0 / 3 * 2) * 2 / 3 + std::log(1.0 / 3 * 2) / 3, 1e-6);
}

TEST(DivergenceOf, NoNumbersIsInfinite) {
  const std::vector<float> logits = logits_of(5, 1);
  std::vector<float> own = logits;
  own[7] = NAN;
  EXPECT_EQ(divergence_of(answer_of(logits), own), INFINITY);
  own[7] = INFINITY;
  EXPECT_EQ(divergence_of(answer_of(logits), own), INFINITY);
  plan::SelfTestAnswer forged = answer_of(logits);
  forged.log_sum = 1e300;
  EXPECT_FALSE(divergence_of(forged, logits) <= 1);
}

}  // namespace
}  // namespace ktx::runtime

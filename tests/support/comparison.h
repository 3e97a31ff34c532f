// Result of the cases of a reference: the number of equal cases, and the differences of the
// listed log-probabilities.
//
//   Comparison all;
//   all.add(found, reference["top_logprobs"][k]);
//   EXPECT_LE(all.mean(), 0.002);
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace ktx::testing {

struct Comparison {
  int cases = 0;
  int equal = 0;  // cases whose greedy tokens are those of the reference
  double sum = 0, worst = 0;
  int64_t count = 0;

  // One log-probability; one that is not a number counts as a difference of 1e9.
  void add(double found, double expected) {
    const double difference = std::abs(found - expected);
    sum += std::isfinite(difference) ? difference : 1e9;
    worst = std::max(worst, std::isfinite(difference) ? difference : 1e9);
    ++count;
  }
  double mean() const { return count ? sum / static_cast<double>(count) : 0; }
};

// Where the two best of a reference step are nearer than this, either is right.
inline constexpr double kReferenceTie = 0.005;

}  // namespace ktx::testing

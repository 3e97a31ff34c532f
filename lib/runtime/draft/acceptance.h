// How often draft tokens are right: the share of right ones among draft tokens that follow right
// ones. Older results count less.
#pragma once

#include <cstdint>

namespace ktx::runtime {

class Acceptance {
 public:
  // The first `right` of `drafted` tokens were right; those behind a wrong one prove nothing.
  void add(int64_t drafted, int64_t right) {
    if (drafted == 0) return;
    right_ = kKept * right_ + static_cast<double>(right);
    tried_ = kKept * tried_ + static_cast<double>(right + (right < drafted ? 1 : 0));
  }
  // With `prior` as if it had been seen `weight` times.
  double rate(double prior, double weight) const {
    return (right_ + weight * prior) / (tried_ + weight);
  }

 private:
  static constexpr double kKept = 0.95;  // of all passes before, by each

  double right_ = 0, tried_ = 0;
};

// Tokens of a pass with `draft_tokens`, each right with probability `rate` behind right ones: those
// that are right, and the one behind them.
inline double expected_tokens(double rate, int64_t draft_tokens) {
  double sum = 1, power = 1;
  for (int64_t i = 0; i < draft_tokens; ++i) sum += power *= rate;
  return sum;
}

}  // namespace ktx::runtime

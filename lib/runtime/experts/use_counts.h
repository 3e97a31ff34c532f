// Counts of uses that halve over kHalfLife tokens: what was used often lately has the most, and one
// use displaces nothing.
//
//   counts.count(expert, 1);      // a token was routed to it
//   counts.age(1);                // a token later
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

namespace ktx::runtime {

inline constexpr double kCountUnit = 1000;  // of a use in a profile, which has whole numbers

class UseCounts {
 public:
  static constexpr double kHalfLife = 512;  // tokens

  explicit UseCounts(int64_t things) : counts_(static_cast<size_t>(things)) {}

  void count(int32_t thing, double uses) { counts_[thing] += uses * unit_; }
  double of(int32_t thing) const { return counts_[thing] / unit_; }
  // Instead of all counts, what a use is worth changes.
  void age(int64_t tokens) {
    constexpr double kLargeUnit = 1e100;
    unit_ *= std::exp2(static_cast<double>(tokens) / kHalfLife);
    if (unit_ < kLargeUnit) return;
    for (double& count : counts_) count /= unit_;
    unit_ = 1;
  }

 private:
  std::vector<double> counts_;  // in units of one use now
  double unit_ = 1;
};

}  // namespace ktx::runtime

// Counts of uses that halve over kHalfLife tokens: what was used often lately has the most, and one
// use displaces nothing.
//
//   counts.count(expert, 1);      // a token was routed to it
//   counts.age(1);                // a token later
#pragma once

#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

namespace ktx::runtime {

class UseCounts {
 public:
  static constexpr double kHalfLife = 512;  // tokens

  explicit UseCounts(int64_t things) : counts_(static_cast<size_t>(things)) {}

  void count(int32_t thing, double uses) { counts_[thing] += uses * unit_; }
  double of(int32_t thing) const { return counts_[thing] / unit_; }
  // Counts of things from `first` on as a profile has them (plan/expert_profile.h): in whole
  // numbers, thousandths of a use.
  void add_noted(int32_t first, std::span<const uint64_t> noted) {
    for (size_t i = 0; i < noted.size(); ++i) {
      count(first + static_cast<int32_t>(i), static_cast<double>(noted[i]) / kNotedUse);
    }
  }
  std::vector<uint64_t> noted(int32_t first, int32_t things) const {
    std::vector<uint64_t> all;
    for (int32_t i = first; i < first + things; ++i) {
      all.push_back(static_cast<uint64_t>(std::llround(of(i) * kNotedUse)));
    }
    return all;
  }
  // Instead of all counts, what a use is worth changes.
  void age(int64_t tokens) {
    constexpr double kLargeUnit = 1e100;
    unit_ *= std::exp2(static_cast<double>(tokens) / kHalfLife);
    if (unit_ < kLargeUnit) return;
    for (double& count : counts_) count /= unit_;
    unit_ = 1;
  }

 private:
  static constexpr double kNotedUse = 1000;
  std::vector<double> counts_;  // in units of one use now
  double unit_ = 1;
};

}  // namespace ktx::runtime

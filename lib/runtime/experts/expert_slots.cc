#include "lib/runtime/experts/expert_slots.h"

#include <algorithm>
#include <numeric>

namespace ktx::runtime {

ExpertSlots::ExpertSlots(int64_t slots, int64_t experts)
    : slot_of_(static_cast<size_t>(experts), -1),
      expert_in_(static_cast<size_t>(slots), -1),
      empty_(static_cast<size_t>(slots)),
      counts_(experts) {
  std::iota(empty_.rbegin(), empty_.rend(), 0);
  taken_.reserve(static_cast<size_t>(slots));
  guests_.reserve(static_cast<size_t>(slots));
}

std::span<const int32_t> ExpertSlots::take(int64_t n,
                                           const std::function<bool(int32_t expert)>& may_go) {
  taken_.clear();
  while (n > std::ssize(taken_) && !empty_.empty()) {
    taken_.push_back(empty_.back());
    empty_.pop_back();
  }
  const int64_t more = n - std::ssize(taken_);
  if (more <= 0) return taken_;
  guests_.clear();
  for (int32_t slot = 0; slot < slots(); ++slot) {
    if (expert_in_[slot] >= 0 && may_go(expert_in_[slot])) guests_.push_back(slot);
  }
  const auto less = [&](int32_t a, int32_t b) {
    const double x = counts_.of(expert_in_[a]), y = counts_.of(expert_in_[b]);
    return x != y ? x < y : a < b;
  };
  const auto end = guests_.begin() + std::min<int64_t>(more, std::ssize(guests_));
  std::partial_sort(guests_.begin(), end, guests_.end(), less);
  for (auto slot = guests_.begin(); slot != end; ++slot) {
    slot_of_[expert_in_[*slot]] = -1;
    expert_in_[*slot] = -1;
    taken_.push_back(*slot);
  }
  return taken_;
}

void ExpertSlots::put(int32_t slot, int32_t expert) {
  expert_in_[slot] = expert;
  slot_of_[expert] = slot;
}

void ExpertSlots::clear(int32_t slot) {
  if (expert_in_[slot] >= 0) slot_of_[expert_in_[slot]] = -1;
  expert_in_[slot] = -1;
  empty_.push_back(slot);
}

std::vector<int32_t> ExpertSlots::by_count() const {
  std::vector<int32_t> all(slot_of_.size());
  std::iota(all.begin(), all.end(), 0);
  std::ranges::stable_sort(all,
                           [&](int32_t a, int32_t b) { return counts_.of(a) > counts_.of(b); });
  return all;
}

}  // namespace ktx::runtime

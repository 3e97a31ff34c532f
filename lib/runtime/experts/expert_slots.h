// Which expert is in which slot, and which goes when another one needs its place.
//
// Every use of an expert counts (use_counts.h): what was used often lately stays, whichever layer
// it is of.
//
//   slots.counts().count(expert, 1);                 // a token was routed to it
//   slots.counts().age(1);                           // a token later
//   for (int32_t slot : slots.take(n, may_go)) slots.put(slot, expert);
//
// Holds no memory and takes no locks.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "lib/runtime/experts/use_counts.h"

namespace ktx::runtime {

class ExpertSlots {
 public:
  ExpertSlots(int64_t slots, int64_t experts);

  int32_t slot_of(int32_t expert) const { return slot_of_[expert]; }  // -1: none
  int32_t expert_in(int32_t slot) const { return expert_in_[slot]; }  // -1: it is empty
  int64_t empty() const { return static_cast<int64_t>(empty_.size()); }
  int64_t slots() const { return static_cast<int64_t>(expert_in_.size()); }
  int64_t experts() const { return static_cast<int64_t>(slot_of_.size()); }

  UseCounts& counts() { return counts_; }
  const UseCounts& counts() const { return counts_; }

  // Up to `n` slots to fill: empty ones first, then those whose experts have the least counts of
  // all that `may_go`. They are empty then. Valid until the next call, which allocates nothing.
  std::span<const int32_t> take(int64_t n, const std::function<bool(int32_t expert)>& may_go);
  void put(int32_t slot, int32_t expert);
  void clear(int32_t slot);

  // All experts, the most used first, equal ones by number.
  std::vector<int32_t> by_count() const;

 private:
  std::vector<int32_t> slot_of_, expert_in_, empty_;
  std::vector<int32_t> taken_, guests_;  // of take()
  UseCounts counts_;
};

}  // namespace ktx::runtime

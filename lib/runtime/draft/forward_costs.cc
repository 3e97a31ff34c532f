#include "lib/runtime/draft/forward_costs.h"

#include <algorithm>
#include <iterator>

namespace ktx::runtime {
namespace {

// What a pass of `size` takes where one of `known` takes `seconds`.
double scaled(double seconds, int64_t known, int64_t size) {
  const auto share = [](int64_t tokens) {
    return 1 + ForwardCosts::kExtra * static_cast<double>(tokens - 1);
  };
  return seconds * share(size) / share(known);
}

}  // namespace

void ForwardCosts::add(int64_t size, double seconds) {
  ++now_;
  const double expected = of(size);
  Cost& cost = costs_[bucket(size)];
  if (cost.count == 0) {
    cost.seconds = expected > 0 ? std::min(seconds, 2 * expected) : seconds;
  } else if (cost.count == 1) {
    cost.seconds = std::min(seconds, cost.seconds);
  } else {
    // What takes several times as long was interrupted.
    cost.seconds += 0.2 * (std::min(seconds, 2 * cost.seconds) - cost.seconds);
  }
  ++cost.count;
  cost.when = now_;
}

double ForwardCosts::of(int64_t size) const {
  if (costs_.empty()) return 0;
  const int64_t at = bucket(size);
  const auto above = costs_.lower_bound(at);
  if (above != costs_.end() && above->first == at) return above->second.seconds;
  if (above == costs_.begin()) return scaled(above->second.seconds, above->first, at);
  const auto below = std::prev(above);
  if (above == costs_.end()) {
    const auto first = costs_.begin();
    const double guessed = scaled(below->second.seconds, below->first, at);
    if (first == below) return guessed;
    // On along the line of what was measured; never cheaper than the largest of it.
    const double slope = (below->second.seconds - first->second.seconds) /
                         static_cast<double>(below->first - first->first);
    return below->second.seconds + std::max(0.0, slope) * static_cast<double>(at - below->first);
  }
  const double along =
      static_cast<double>(at - below->first) / static_cast<double>(above->first - below->first);
  return below->second.seconds + along * (above->second.seconds - below->second.seconds);
}

int64_t ForwardCosts::age(int64_t size) const {
  const auto found = costs_.find(bucket(size));
  return found == costs_.end() ? now_ : now_ - found->second.when;
}

}  // namespace ktx::runtime

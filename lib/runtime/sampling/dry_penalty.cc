#include "lib/runtime/sampling/dry_penalty.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <vector>

namespace ktx::runtime {
namespace {

// How many of the last tokens come behind the last breaker.
size_t tokens_since_breaker(const DryOptions& options, std::span<const int32_t> history) {
  size_t since = history.size();
  for (const std::vector<int32_t>& breaker : options.breakers) {
    if (breaker.empty() || breaker.size() > history.size()) continue;
    const auto found =
        std::find_end(history.begin(), history.end(), breaker.begin(), breaker.end());
    if (found == history.end()) continue;
    const auto behind = history.end() - found - static_cast<ptrdiff_t>(breaker.size());
    since = std::min(since, static_cast<size_t>(behind));
  }
  return since;
}

}  // namespace

void apply_dry_penalty(const DryOptions& options, std::span<const int32_t> history,
                       std::span<float> logits) {
  if (options.multiplier == 0) return;
  if (options.window >= 0) {
    history = history.last(std::min<size_t>(history.size(), options.window));
  }
  const size_t most = tokens_since_breaker(options, history);
  const size_t size = history.size();
  if (size < 2 || most < static_cast<size_t>(options.allowed_length)) return;

  // The Z function of the text read backwards: z[i] tokens before the last but i equal the last
  // ones.
  const auto at = [&](size_t i) { return history[size - 1 - i]; };
  std::vector<size_t> z(size, 0);
  for (size_t i = 1, left = 0, right = 0; i < size; ++i) {
    if (i < right) z[i] = std::min(right - i, z[i - left]);
    while (i + z[i] < size && at(z[i]) == at(i + z[i])) ++z[i];
    if (i + z[i] > right) {
      left = i;
      right = i + z[i];
    }
  }
  std::map<int32_t, size_t> longest;  // by the token that followed
  for (size_t i = 1; i < size; ++i) {
    const size_t length = std::min(z[i], most);
    if (length < static_cast<size_t>(options.allowed_length)) continue;
    size_t& known = longest[at(i - 1)];
    known = std::max(known, length);
  }
  for (const auto& [id, length] : longest) {
    if (id < 0 || static_cast<size_t>(id) >= logits.size()) continue;
    const bool breaks = std::any_of(
        options.breakers.begin(), options.breakers.end(),
        [id = id](const auto& breaker) { return breaker.size() == 1 && breaker[0] == id; });
    if (breaks) continue;
    const double excess = static_cast<double>(length) - options.allowed_length;
    // What is this unlikely is never drawn; larger numbers would become infinite.
    constexpr double kMost = 1e6;
    logits[id] -=
        static_cast<float>(std::min(options.multiplier * std::pow(options.base, excess), kMost));
  }
}

}  // namespace ktx::runtime

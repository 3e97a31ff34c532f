#include "lib/runtime/batch_plan.h"

#include <algorithm>
#include <unordered_set>

namespace ktx::runtime {

std::vector<int64_t> plan_step(std::span<const StepCandidate> candidates, int64_t budget,
                               int64_t block_tokens) {
  const int64_t whole = budget;
  std::vector<int64_t> shares(candidates.size(), 0);
  std::vector<size_t> prompts;
  std::unordered_set<uint64_t> in_work;
  for (size_t i = 0; i < candidates.size(); ++i) {
    const StepCandidate& candidate = candidates[i];
    if (candidate.remaining <= 1) {
      shares[i] = std::min<int64_t>(1, budget);
      budget -= shares[i];
      continue;
    }
    prompts.push_back(i);
    const auto block = static_cast<size_t>(candidate.position / block_tokens);
    if (candidate.position % block_tokens != 0 && block < candidate.blocks.size()) {
      in_work.insert(candidate.blocks[block]);
    }
  }
  const auto give = [&](size_t i, int64_t tokens) {
    const StepCandidate& candidate = candidates[i];
    const int64_t from = candidate.position + shares[i];
    const auto first = static_cast<size_t>(from / block_tokens);
    if (from % block_tokens == 0 && shares[i] == 0 && first < candidate.blocks.size() &&
        in_work.count(candidate.blocks[first])) {
      return;
    }
    tokens = std::min({tokens, candidate.remaining - shares[i], budget});
    if (tokens <= 0) return;
    shares[i] += tokens;
    budget -= tokens;
    const auto end = static_cast<size_t>((from + tokens + block_tokens - 1) / block_tokens);
    for (size_t b = first; b < std::min(end, candidate.blocks.size()); ++b) {
      in_work.insert(candidate.blocks[b]);
    }
  };
  if (prompts.empty()) return shares;
  const auto oldest = *std::min_element(prompts.begin(), prompts.end(), [&](size_t a, size_t b) {
    return candidates[a].arrival < candidates[b].arrival;
  });
  give(oldest, std::max<int64_t>(1, budget / 4));
  std::sort(prompts.begin(), prompts.end(), [&](size_t a, size_t b) {
    const StepCandidate &x = candidates[a], &y = candidates[b];
    return x.remaining != y.remaining ? x.remaining < y.remaining : x.arrival < y.arrival;
  });
  bool ended = shares[oldest] == candidates[oldest].remaining;
  for (size_t i : prompts) {
    const bool ends = candidates[i].remaining - shares[i] <= budget;
    give(i, ends || !ended ? budget : budget - (whole - whole / 3));
    ended = ended || shares[i] == candidates[i].remaining;
  }
  return shares;
}

}  // namespace ktx::runtime

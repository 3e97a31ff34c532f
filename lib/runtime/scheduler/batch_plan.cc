#include "lib/runtime/scheduler/batch_plan.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <unordered_set>

#include "lib/runtime/engine/images_of_pass.h"

namespace ktx::runtime {
namespace {

// So many of the tokens [from, from + tokens) that the end cuts no image: more where there is room.
int64_t whole_images(std::span<const ImageTokens> images, int64_t from, int64_t tokens,
                     int64_t room) {
  for (const ImageTokens& image : images) {
    if (!cuts(image, from + tokens)) continue;
    return image.end() - from <= room ? image.end() - from : image.first - from;
  }
  return tokens;
}

// The tokens of the image that the candidate's next step begins with; 0: none.
int64_t first_image(const StepCandidate& candidate) {
  for (const ImageTokens& image : candidate.images) {
    if (cuts(image, candidate.position + 1)) return image.end() - candidate.position;
  }
  return 0;
}

// Distributes the budget; no request gets a block that another one computes in this step.
class StepPlan {
 public:
  StepPlan(std::span<const StepCandidate> candidates, int64_t budget, int64_t block_tokens)
      : candidates_(candidates),
        block_tokens_(block_tokens),
        shares_(candidates.size(), 0),
        left_(budget) {
    for (const StepCandidate& candidate : candidates) {
      claim(candidate, candidate.position - candidate.ahead, candidate.position);
    }
  }

  int64_t left() const { return left_; }
  int64_t remaining(size_t i) const { return candidates_[i].remaining - shares_[i]; }
  std::vector<int64_t> take() { return std::move(shares_); }

  // The block that a prompt is in the middle of is its own.
  void claim_begun(size_t i) {
    const StepCandidate& candidate = candidates_[i];
    const auto block = static_cast<size_t>(candidate.position / block_tokens_);
    if (candidate.position % block_tokens_ != 0 && block < candidate.blocks.size()) {
      in_work_.insert(candidate.blocks[block]);
    }
  }
  bool waits(size_t i) const {
    const StepCandidate& candidate = candidates_[i];
    const auto first = static_cast<size_t>(candidate.position / block_tokens_);
    return shares_[i] == 0 && candidate.position % block_tokens_ == 0 &&
           first < candidate.blocks.size() && in_work_.count(candidate.blocks[first]) > 0;
  }
  void give(size_t i, int64_t tokens) {
    if (waits(i)) return;
    const StepCandidate& candidate = candidates_[i];
    const int64_t from = candidate.position + shares_[i];
    tokens = std::min({tokens, remaining(i), left_});
    if (tokens > 0) tokens = whole_images(candidate.images, from, tokens, left_);
    if (tokens <= 0) return;
    shares_[i] += tokens;
    left_ -= tokens;
    claim(candidate, from, from + tokens);
  }
  // The share ends at a multiple of `tokens`, where it is large enough.
  void end_at(size_t i, int64_t tokens) {
    if (remaining(i) == 0 || shares_[i] < 8 * tokens) return;
    const int64_t end = candidates_[i].position + shares_[i];
    const int64_t over = end % tokens;
    const auto cut = [&](const ImageTokens& image) { return cuts(image, end - over); };
    if (std::ranges::any_of(candidates_[i].images, cut)) return;
    shares_[i] -= over;
    left_ += over;
  }

 private:
  void claim(const StepCandidate& candidate, int64_t from, int64_t to) {
    if (from == to) return;
    const auto first = static_cast<size_t>(from / block_tokens_);
    const auto end = static_cast<size_t>((to + block_tokens_ - 1) / block_tokens_);
    for (size_t b = first; b < std::min(end, candidate.blocks.size()); ++b) {
      in_work_.insert(candidate.blocks[b]);
    }
  }

  const std::span<const StepCandidate> candidates_;
  const int64_t block_tokens_;
  std::vector<int64_t> shares_;
  int64_t left_;
  std::unordered_set<uint64_t> in_work_;
};

// What each key gets of `tokens` for its prompts.
std::map<std::string_view, int64_t> parts_of_keys(std::span<const StepCandidate> candidates,
                                                  std::span<const size_t> prompts, int64_t tokens) {
  std::map<std::string_view, double> weights;
  for (size_t i : prompts) weights[candidates[i].key] = std::max(candidates[i].weight, 1e-3);
  double sum = 0;
  for (const auto& [key, weight] : weights) sum += weight;
  std::map<std::string_view, int64_t> parts;
  for (const auto& [key, weight] : weights) {
    parts[key] =
        std::max<int64_t>(1, static_cast<int64_t>(static_cast<double>(tokens) * weight / sum));
  }
  return parts;
}

}  // namespace

std::vector<int64_t> plan_step(std::span<const StepCandidate> candidates, int64_t budget,
                               int64_t block_tokens, int64_t end_at) {
  StepPlan plan(candidates, budget, block_tokens);
  std::vector<size_t> prompts;
  for (size_t i = 0; i < candidates.size(); ++i) {
    if (candidates[i].remaining > 1) prompts.push_back(i);
  }
  const auto oldest =
      std::ranges::min_element(prompts, {}, [&](size_t i) { return candidates[i].arrival; });
  // What the others leave, where the oldest can go on with an image alone.
  const int64_t kept_for_image = oldest == prompts.end() ? 0 : first_image(candidates[*oldest]);
  bool ends = false;  // this step produces some request's first token
  for (size_t i = 0; i < candidates.size(); ++i) {
    if (candidates[i].remaining > 1) {
      plan.claim_begun(i);
    } else if (plan.left() > kept_for_image) {
      plan.give(i, 1);
      ends |= candidates[i].silent;
    }
  }
  if (prompts.empty()) return plan.take();
  const size_t first = *oldest;  // the list is sorted now
  std::sort(prompts.begin(), prompts.end(), [&](size_t a, size_t b) {
    const StepCandidate &x = candidates[a], &y = candidates[b];
    return x.remaining != y.remaining ? x.remaining < y.remaining : x.arrival < y.arrival;
  });
  const int64_t beside = budget / 8;  // what ends
  const int64_t sure = std::max<int64_t>(1, beside / 2);
  for (size_t i : prompts) {
    const int64_t kept = i == first ? 0 : sure;
    ends |= !plan.waits(i) && plan.remaining(i) <= plan.left() - kept;
  }
  std::map<std::string_view, int64_t> parts = parts_of_keys(candidates, prompts, plan.left());
  // At most so many tokens; of those that go beside the end of another prompt fewer.
  const auto give = [&](size_t i, int64_t most) {
    const bool to_its_end = plan.remaining(i) <= plan.left();
    const int64_t before = plan.left();
    plan.give(i, std::min(most, to_its_end || !ends ? before : before - (budget - beside)));
    parts[candidates[i].key] -= before - plan.left();
  };
  const int64_t left = plan.left();
  plan.give(first, ends ? sure : std::max<int64_t>(1, left / 4));
  parts[candidates[first].key] -= left - plan.left();
  if (parts.size() > 1) {
    for (size_t i : prompts) give(i, parts[candidates[i].key]);
  }
  for (size_t i : prompts) give(i, plan.left());
  for (size_t i : prompts) plan.end_at(i, end_at);
  return plan.take();
}

std::vector<int64_t> plan_whole_texts(std::span<const StepCandidate> candidates, int64_t budget) {
  std::vector<size_t> order(candidates.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::sort(order, {}, [&](size_t i) { return candidates[i].arrival; });
  std::vector<int64_t> shares(candidates.size());
  for (size_t i : order) {
    if (candidates[i].remaining > budget) continue;
    shares[i] = candidates[i].remaining;
    budget -= shares[i];
  }
  return shares;
}

}  // namespace ktx::runtime

#include "lib/runtime/draft/draft_pace.h"

#include <algorithm>
#include <numeric>

namespace ktx::runtime {
namespace {

constexpr int64_t kLengths[] = {1, 2, 3, 4, 5, 7, 10, 15};
constexpr double kWorthIt = 1.02;     // times the tokens a second of plain passes
constexpr int64_t kPlainEvery = 256;  // passes, then what a plain one takes is measured again
constexpr int64_t kTry = 2;           // draft tokens of a trial
// Larger passes than these, and than twice the largest that was measured, are not begun with: what
// they take may be far from what is expected.
constexpr int64_t kSmall = 8;

}  // namespace

struct DraftPace::Plan {
  int64_t texts = 0;  // of the order's first ones
  int64_t draft_tokens = 0;
  double seconds = 0;
  double tokens = 0;
  int64_t size = 0;  // tokens of the pass
  double rate() const { return tokens / seconds; }
};

DraftPace::Plan DraftPace::fixed(std::span<const Text> texts, std::span<const size_t> order,
                                 int64_t texts_drafted, int64_t draft_tokens) const {
  const auto all = static_cast<int64_t>(texts.size());
  Plan plan = {texts_drafted, draft_tokens, 0, static_cast<double>(all - texts_drafted), 0};
  int64_t extra = 0;
  for (int64_t i = 0; i < texts_drafted; ++i) {
    const Text& text = texts[order[static_cast<size_t>(i)]];
    const int64_t of_text = std::min(draft_tokens, text.limit);
    extra += of_text;
    plan.tokens += expected_tokens(text.rate, of_text);
  }
  plan.size = all + extra;
  plan.seconds = passes_.of(plan.size) + drafting(texts_drafted, draft_tokens);
  return plan;
}

DraftPace::Plan DraftPace::best(std::span<const Text> texts, std::span<const size_t> order) const {
  Plan best = fixed(texts, order, 0, 0);
  for (const int64_t draft_tokens : kLengths) {
    if (draft_tokens > most_) break;
    // All, the better half of them, the better quarter ...
    for (auto count = static_cast<int64_t>(order.size()); count > 0; count /= 2) {
      const Plan plan = fixed(texts, order, count, draft_tokens);
      if (plan.size > std::max(kSmall, 2 * passes_.largest())) continue;
      if (plan.rate() > best.rate()) best = plan;
    }
  }
  return best;
}

std::vector<int64_t> DraftPace::choose(std::span<const Text> texts) {
  trying_ = false;
  next_try_ = 0;
  std::vector<int64_t> chosen(texts.size(), 0);
  const auto all = static_cast<int64_t>(texts.size());
  if (all == 0 || most_ <= 0) return chosen;
  // Without it nothing is known, and contexts grow.
  if (!passes_.measured(all) || passes_.age(all) >= kPlainEvery) return chosen;
  std::vector<size_t> order;
  for (size_t i = 0; i < texts.size(); ++i) {
    if (texts[i].limit > 0) order.push_back(i);
  }
  if (order.empty()) return chosen;
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return texts[a].rate > texts[b].rate; });
  const Plan plain = fixed(texts, order, 0, 0);
  if (!opened_) account_ = kFirstPasses * plain.seconds;
  opened_ = true;
  next_try_ = order.front();
  Plan plan = best(texts, order);
  const bool wins = plan.draft_tokens > 0 && plan.rate() >= kWorthIt * plain.rate();
  pays_ = wins && account_ > 0;  // where it wins with an empty account, it lost more than expected
  if (pays_) {
    retry_after_ = kRetryAfter;
  } else if (wins) {
    plan.draft_tokens = 0;
  } else {
    // Off; now and then the text that promises most tries.
    plan = fixed(texts, order, 1, std::min(kTry, most_));
    const double loss = plan.seconds - plan.tokens / plain.rate();
    if (off_ < retry_after_ || account_ < loss) plan.draft_tokens = 0;
    trying_ = plan.draft_tokens > 0;
  }
  for (int64_t i = 0; i < plan.texts && plan.draft_tokens > 0; ++i) {
    const size_t text = order[static_cast<size_t>(i)];
    chosen[text] = std::min(plan.draft_tokens, texts[text].limit);
  }
  return chosen;
}

// Libraries load and graphs are made with the first draft token of all; a draft token takes hardly
// more than a plain pass of the model itself.
void DraftPace::add_draft_token(ForwardCosts& costs, const Pass& pass, double seconds,
                                double plain) {
  const bool first = costs.empty() && plain > 0;
  costs.add(pass.drafted, first ? std::min(seconds, plain) : seconds);
}

void DraftPace::add(const Pass& pass) {
  if (pass.texts <= 0 || pass.tokens <= 0) return;
  const double plain = passes_.of(pass.texts);
  passes_.add(pass.tokens, pass.seconds);
  if (pass.drafted > 0 && pass.depth > 0) {
    const auto depth = static_cast<double>(pass.depth);
    const double first =
        pass.first_seconds > 0 ? pass.first_seconds : pass.drafting_seconds / depth;
    add_draft_token(first_drafts_, pass, first, plain);
    if (depth > 1)
      add_draft_token(next_drafts_, pass, (pass.drafting_seconds - first) / (depth - 1), plain);
  }
  if (!opened_) return;
  if (pass.drafted == 0) {
    ++off_;
    account_ += kAllowed * pass.seconds;
  } else {
    off_ = 0;
    if (trying_) retry_after_ = std::min(2 * retry_after_, kRetryAfterMost);
    account_ += plain * static_cast<double>(pass.produced) / static_cast<double>(pass.texts) -
                passes_.of(pass.tokens) - drafting(pass.drafted, pass.depth) -
                (pass.draft_seconds - pass.drafting_seconds);
  }
  const double one = passes_.of(pass.texts);
  account_ = std::clamp(account_, kLeastPasses * one, kSavedPasses * one);
}

double DraftPace::drafting(int64_t texts, int64_t draft_tokens) const {
  if (texts <= 0 || draft_tokens <= 0) return 0;
  const ForwardCosts& next = next_drafts_.empty() ? first_drafts_ : next_drafts_;
  return first_drafts_.of(texts) + next.of(texts) * static_cast<double>(draft_tokens - 1);
}

double DraftPace::predicted(int64_t texts, int64_t draft_tokens) const {
  return passes_.of(texts * (1 + draft_tokens)) + drafting(texts, draft_tokens);
}

}  // namespace ktx::runtime

#include "lib/runtime/draft/speculation.h"

#include <algorithm>
#include <utility>

#include "lib/runtime/engine/engine.h"
#include "lib/support/timer.h"

namespace ktx::runtime {
namespace {

// What is expected of a drafter before anything was seen, and how often that counts as seen.
constexpr double kRate = 0.7, kRateWeight = 8;
// Tokens of prompts that a drafter reads before a pass, while answers wait. What is read for a try
// counts as its cost; else it pays later, and is counted with the prompt.
constexpr int64_t kReadTokens = 512, kReadForTry = 32;

}  // namespace

void Speculation::settle() {
  if (pass_.seconds > 0) pace_.add(pass_);
  pass_ = {};
}

void Speculation::draft(std::span<Item> items, int64_t others, int64_t budget) {
  settle();
  if (others == 0) pass_.texts = static_cast<int64_t>(items.size());
  if (!failure_.empty() || items.empty() || (options_.adaptive && others > 0)) return;
  const double rate = acceptance_.rate(kRate, kRateWeight);
  std::vector<DraftPace::Text> texts;
  for (Item& item : items) {
    texts.push_back(
        {item.text->acceptance_.rate(rate, kRateWeight), std::min(item.limit, options_.most)});
  }
  std::vector<int64_t> lengths;
  if (options_.adaptive) {
    lengths = pace_.choose(texts);
    next_try_ = items[pace_.next_try()].text;
  } else {
    for (const DraftPace::Text& text : texts) lengths.push_back(text.limit);
  }
  std::vector<DraftItem> drafts;
  std::vector<size_t> whose;
  for (size_t i = 0; i < items.size(); ++i) {
    const int64_t most = std::min(lengths[i], budget);
    if (most <= 0) continue;
    budget -= most;
    Item& item = items[i];
    drafts.push_back({&draft_of(item), item.tokens, item.sampler, most, {}});
    whose.push_back(i);
  }
  if (drafts.empty()) return;
  const Timer reading;
  const bool trying = options_.adaptive && pace_.trying();
  const auto work = [&]() -> Status {
    KTX_TRY(drafter_.read(drafts, trying ? kReadForTry : kReadTokens));
    const double read = reading.seconds();
    const Timer drafting;
    KTX_TRY(drafter_.draft(drafts));
    pass_.drafting_seconds = drafting.seconds();
    pass_.first_seconds = drafter_.first_seconds();
    pass_.draft_seconds = pass_.drafting_seconds + (trying ? read : 0);
    return {};
  };
  if (const Status done = work(); !done) {
    failure_ = done.error().message;
    return;
  }
  for (size_t i = 0; i < drafts.size(); ++i) {
    const auto count = static_cast<int64_t>(drafts[i].draft_tokens.size());
    pass_.drafted += count > 0;
    pass_.depth = std::max(pass_.depth, count);
    items[whose[i]].draft_tokens = std::move(drafts[i].draft_tokens);
  }
}

DraftText& Speculation::draft_of(const Item& item) {
  std::unique_ptr<DraftText>& draft = item.text->draft_;
  if (!draft) draft = drafter_.begin(std::string(item.owner), item.sampler->options());
  return *draft;
}

// Within the next passes.
bool Speculation::may_draft_for(const Text& text) const {
  if (reads_all()) return true;
  return &text == next_try_ && pace_.tries_soon();
}

void Speculation::computed(const Item& item, Engine& engine, const Computed& what) {
  if (!reads_hidden() || what.count == 0) return;
  if (!may_draft_for(*item.text)) return;
  const auto work = [&]() -> Status {
    const std::span<const float> rows =
        KTX_TRY(engine.hidden_of_tokens(what.row, what.count, reads_all()));
    return drafter_.take_hidden(draft_of(item), item.tokens, what.begin, rows);
  };
  if (const Status done = work(); !done) failure_ = done.error().message;
}

void Speculation::passed(int64_t tokens, double seconds) {
  pass_.tokens = tokens;
  pass_.seconds = seconds;
}

void Speculation::verified(Text& text, int64_t drafted, int64_t right) {
  pass_.produced += right + 1;
  text.acceptance_.add(drafted, right);
  acceptance_.add(drafted, right);
}

}  // namespace ktx::runtime

// Speculative decoding: a drafter drafts the next tokens of texts, the model computes them in one
// pass, and those that it would have chosen itself are kept.
//
//   speculation.draft(items, 0, budget);       // how many: draft_pace.h
//   engine.forward(...)             // each text's token and its draft tokens, all rows wanted
//   speculation.computed(item, engine, what);   // where reads_hidden()
//   speculation.passed(tokens, seconds);
//   speculation.verified(text, drafted, right);
//
// The caller samples from row to row with the text's own sampler, and stops at the first token that
// was not drafted. So every token is drawn from the model's own logits with the text's own random
// numbers: an answer is the same with and without draft tokens, greedy and sampled (numerics
// contract).
//
// Used by the thread of the engine. Outlives the texts.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lib/runtime/draft/acceptance.h"
#include "lib/runtime/draft/draft_pace.h"
#include "lib/runtime/draft/drafter.h"

namespace ktx::runtime {

class Engine;

// Maximum draft tokens per sequence; with the verified token that makes kDecodeTokens (16).
inline constexpr int64_t kMaxDraftTokens = 15;

struct SpeculationOptions {
  int64_t most = 8;      // draft tokens of a text in a pass, up to kMaxDraftTokens
  bool adaptive = true;  // fewer, or none, where they do not pay; else always so many
};

class Speculation {
 public:
  // What is kept of one text. Made with the first draft tokens for it.
  class Text {
   private:
    friend class Speculation;
    std::unique_ptr<DraftText> draft_;
    Acceptance acceptance_;
  };

  // `drafter` outlives it.
  Speculation(Drafter& drafter, const SpeculationOptions& options)
      : drafter_(drafter), options_(options), pace_(options.most) {}

  struct Item {
    Text* text = nullptr;
    std::span<const int32_t> tokens;
    const Sampler* sampler = nullptr;
    std::string_view owner;
    int64_t limit = 0;                  // draft tokens that are possible
    std::vector<int32_t> draft_tokens;  // the result
  };
  // Draft tokens for the texts of a pass that computes one token of each, and `others` of other
  // texts: beside those nothing is drafted when it is adaptive. At most `budget` draft tokens in
  // all.
  void draft(std::span<Item> items, int64_t others, int64_t budget);

  // After each pass of the model, of prompts too, before the next one: it computed `count` tokens
  // of a text from token `begin` on, draft tokens among them, the first of them as token `row` of
  // the pass.
  struct Computed {
    int64_t row = 0, begin = 0, count = 0;
  };
  bool reads_hidden() const { return failure_.empty() && drafter_.reads_hidden(); }
  void computed(const Item& item, Engine& engine, const Computed& what);

  // After that pass, which computed so many tokens in all; and for each of its items.
  void passed(int64_t tokens, double seconds);
  void verified(Text& text, int64_t drafted, int64_t right);
  // The pass was not computed.
  void forget_forward() { pass_ = {}; }

  const Drafter& drafter() const { return drafter_; }
  const SpeculationOptions& options() const { return options_; }
  const DraftPace& pace() const { return pace_; }
  // Why nothing is drafted any more; "": it goes on.
  const std::string& failure() const { return failure_; }

 private:
  DraftText& draft_of(const Item& item);
  bool reads_all() const { return !options_.adaptive || pace_.pays(); }
  bool may_draft_for(const Text& text) const;
  void settle();

  Drafter& drafter_;
  const SpeculationOptions options_;
  DraftPace pace_;
  Acceptance acceptance_;  // of all texts
  DraftPace::Pass pass_;   // the last one, which is not in the pace yet
  std::string failure_;
  const Text* next_try_ = nullptr;  // compared alone: it may be gone
};

}  // namespace ktx::runtime

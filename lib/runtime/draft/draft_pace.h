// Chooses how many tokens are drafted in a pass: the number with the most expected tokens per
// second, from the measured times of passes and draft tokens and the share of right ones.
//
//   texts 1, plain pass 10 ms; a pass of 5 tokens 14 ms, a draft token 1 ms, 70 % of them right
//     0 draft tokens: 1 token in 10 ms     4 draft tokens: 2.77 tokens in 18 ms -> 4
//
// It switches itself off where drafting loses, and keeps an account so that it loses little where
// what it expects is wrong: the time that draft tokens took beyond plain passes for the same tokens
// is taken from it, plain passes add kAllowed of their time, and nothing is drafted while it is
// empty. What draft tokens gain is added too, up to kSavedPasses, so that a few wrong ones in a row
// change nothing where most are right: without, an account that chance had emptied kept draft
// tokens off for a hundred passes. So all that drafting can lose is kAllowed of the time and what
// the account holds. Where it is off it tries again from time to time, when the account can pay for
// it: after 64 passes, and twice as many after each try that was lost, up to 256.
//
// The account counts what passes and draft tokens take by what was measured of their sizes, not
// each by itself: those that load kernels or make graphs are few, however long they take.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "lib/runtime/draft/acceptance.h"
#include "lib/runtime/draft/forward_costs.h"

namespace ktx::runtime {

class DraftPace {
 public:
  static constexpr double kAllowed = 0.015;
  // The account's value at the beginning, its maximum and its minimum, in plain passes.
  static constexpr double kFirstPasses = 2, kSavedPasses = 8, kLeastPasses = -1;

  explicit DraftPace(int64_t most) : most_(most) {}

  struct Text {
    double rate = 0;    // of draft tokens that are right (Acceptance)
    int64_t limit = 0;  // draft tokens that are possible
  };
  // The draft tokens of each text in a pass that has a token of each.
  std::vector<int64_t> choose(std::span<const Text> texts);
  // What was chosen last is a try: a loss is expected of it.
  bool trying() const { return trying_; }
  // Draft tokens may be chosen within the next kWarmUp passes for all texts where they pay, else
  // for one that tries, or for none. A drafter reads the passes before for those texts alone.
  static constexpr int64_t kWarmUp = 64;
  bool pays() const { return pays_; }
  bool tries_soon() const { return off_ + kWarmUp >= retry_after_; }
  size_t next_try() const { return next_try_; }  // by number in the last choose()

  // A pass without prompts: its tokens with draft tokens, in which `texts` got `produced` tokens;
  // what drafting took, for `drafted` texts and at most `depth` tokens of each: in all, without
  // what was read for it alone, and until there was a first draft token (0: each takes alike).
  struct Pass {
    int64_t texts = 0, tokens = 0, produced = 0;
    double seconds = 0;
    int64_t drafted = 0, depth = 0;
    double draft_seconds = 0, drafting_seconds = 0, first_seconds = 0;
  };
  void add(const Pass& pass);

  // Seconds for `draft_tokens` of `texts` and the pass that verifies them, as far as it is known.
  double predicted(int64_t texts, int64_t draft_tokens) const;
  const ForwardCosts& passes() const { return passes_; }

 private:
  static constexpr int64_t kRetryAfter = 64, kRetryAfterMost = 256;

  struct Plan;
  static void add_draft_token(ForwardCosts& costs, const Pass& pass, double seconds, double plain);
  Plan best(std::span<const Text> texts, std::span<const size_t> order) const;
  Plan fixed(std::span<const Text> texts, std::span<const size_t> order, int64_t texts_drafted,
             int64_t draft_tokens) const;

  int64_t most_;
  // Seconds of `draft_tokens` for each of `texts`; 0: nothing was measured.
  double drafting(int64_t texts, int64_t draft_tokens) const;

  ForwardCosts passes_;
  ForwardCosts first_drafts_, next_drafts_;  // of one for each text, by texts
  double account_ = 0;                       // seconds
  bool opened_ = false;                      // the account has its first sum
  int64_t off_ = 0;                          // passes since something was drafted
  int64_t retry_after_ = kRetryAfter;        // so many of them
  bool trying_ = false;
  bool pays_ = true;  // so it is taken to be before anything is known
  size_t next_try_ = 0;
};

}  // namespace ktx::runtime

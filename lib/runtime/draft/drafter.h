// What drafts the next tokens of texts, for the model to verify in one pass (speculation.h).
//
//   lookup_drafter.h      from the text itself (n-grams)
//   plan_drafter.h        a small model in a plan of its own
//   prediction_drafter.h  layers that read the model's hidden states: its own, or a draft head
//   scripted_drafter.h    from an answer that is known before: benchmarks and tests
//
// A draft token is never trusted: a wrong one costs time and changes no answer. So a drafter may be
// wrong, and may give nothing. One thread uses it, that of the model's engine.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lib/runtime/sampling/sampler.h"
#include "lib/support/result.h"

namespace ktx::runtime {

// What a drafter keeps of one text, between its passes. Ends before the drafter.
class DraftText {
 public:
  virtual ~DraftText() = default;
};

struct DraftItem {
  DraftText* text = nullptr;
  std::span<const int32_t> tokens;    // all of the text; may differ from those of the last call
  const Sampler* sampler = nullptr;   // of the text, as it is before the next token
  int64_t most = 0;                   // draft tokens that are wanted
  std::vector<int32_t> draft_tokens;  // the result: at most so many
};

class Drafter {
 public:
  virtual ~Drafter() = default;
  virtual std::string_view name() const = 0;
  // `owner`: whose text it is; what a drafter keeps for later is found by the same owner alone.
  virtual std::unique_ptr<DraftText> begin(const std::string& owner,
                                           const SamplingOptions& sampling) = 0;
  // Whether it reads the model's hidden states, and so has to see every pass.
  virtual bool reads_hidden() const { return false; }
  // Behind a pass of the model that computed some of a text's `tokens` and perhaps draft tokens
  // behind them, from token `begin` on: a row of hidden states for each. After a failure it gives
  // no more.
  virtual Status take_hidden(DraftText& /*text*/, std::span<const int32_t> /*tokens*/,
                             int64_t /*begin*/, std::span<const float> /*rows*/) {
    return {};
  }
  // Tokens that it has to read before it can draft, beyond the few that every pass adds.
  virtual int64_t behind(DraftText& /*text*/, std::span<const int32_t> /*tokens*/) { return 0; }
  // Reads at most `tokens` of what it is behind of, in all.
  virtual Status read(std::span<DraftItem> /*items*/, int64_t /*tokens*/) { return {}; }
  // Texts that it is behind of get no draft tokens. After a failure it gives no more.
  virtual Status draft(std::span<DraftItem> items) = 0;
  // Seconds until the last draft() had the first draft token of each text, with the time to read
  // what the pass before added; 0: every draft token takes the same time.
  virtual double first_seconds() const { return 0; }
};

}  // namespace ktx::runtime

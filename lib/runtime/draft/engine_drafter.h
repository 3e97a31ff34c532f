// What drafters that have an engine share (plan_drafter.cc, prediction_drafter.cc): texts in that
// engine, and draft tokens of several of them, a token of each in a pass.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lib/runtime/draft/drafter.h"
#include "lib/runtime/engine/engine.h"
#include "lib/support/timer.h"

namespace ktx::runtime {

// How many tokens of a text draft() reads by itself; beyond that they are read before.
inline constexpr int64_t kNearTokens = 16;

// The text's own sampler; greedy if it does not fit the drafter's vocabulary.
Sampler draft_sampler(const SamplingOptions& options, int64_t vocab);

struct EngineText : DraftText {
  EngineText(Engine& engine, const std::string& owner, Sampler sampler)
      : engine(engine), sequence(engine.new_sequence(owner)), sampler(std::move(sampler)) {}

  void truncate(int64_t length) {
    sequence.truncate(length);
    held.resize(static_cast<size_t>(sequence.length()));
  }
  // There is no room for what it was to read.
  virtual void lose() { truncate(0); }
  // Samples from a row of the engine's last pass; none: the logits are NaN, or no token is allowed.
  // `history`: the held tokens, numbered as the logits are.
  std::optional<int32_t> sample(int64_t row, std::span<const int32_t> history);

  Engine& engine;
  Sequence sequence;
  Sampler sampler;
  std::vector<int32_t> held;  // what the sequence holds, draft tokens too
};

class EngineDrafter : public Drafter {
 public:
  double first_seconds() const override { return first_seconds_; }

 protected:
  // A text in the pass at hand, and what it computes next.
  struct Open {
    DraftItem* item = nullptr;  // null: nothing is drafted
    EngineText* text = nullptr;
    std::vector<int32_t> next;
    std::vector<float> hidden = {};  // BatchItem::hidden of `next`
  };
  EngineDrafter(std::unique_ptr<Engine> engine, int64_t model_vocab)
      : engine_(std::move(engine)), model_vocab_(model_vocab) {}

  // Computes `next` of each, which hold it then. Those without room lose what they held, and go.
  Status forward(std::vector<Open>& texts, Want want);
  // Then: draft tokens for each, from its row of logits and from passes that follow.
  Status draft_on(std::vector<Open>& texts, const Timer& begun);

  // The draft token that a row of logits gives, in the drafter's numbers and in the model's.
  struct Drafted {
    int32_t own = 0, token = 0;
  };
  virtual std::optional<Drafted> sample(EngineText& text, int64_t row) const = 0;
  // What the draft token behind reads: `row` of the logits, `token` of the pass.
  virtual Status take_hidden_of(int64_t /*row*/, int64_t /*token*/,
                                std::vector<float>& /*hidden*/) const {
    return {};
  }

  const std::unique_ptr<Engine> engine_;
  const int64_t model_vocab_;
  double first_seconds_ = 0;

 private:
  Status take_draft_tokens(std::vector<Open>& texts);
};

}  // namespace ktx::runtime

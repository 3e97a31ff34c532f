// A text of a drafter that has an engine (plan_drafter.cc, prediction_drafter.cc).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "lib/runtime/draft/drafter.h"
#include "lib/runtime/engine/engine.h"

namespace ktx::runtime {

// Tokens that draft() reads of a text by itself: more are read before.
inline constexpr int64_t kNearTokens = 16;

// That of the text; greedy where it does not fit the drafter's vocabulary.
inline Sampler draft_sampler(const SamplingOptions& options, int64_t vocab) {
  auto sampler = Sampler::create(options, vocab);
  if (!sampler) sampler = Sampler::create(greedy_sampling(), vocab);
  return sampler.take();
}

struct EngineText : DraftText {
  EngineText(Engine& engine, const std::string& owner, Sampler sampler)
      : engine(engine), sequence(engine.new_sequence(owner)), sampler(std::move(sampler)) {}

  void truncate(int64_t length) {
    sequence.truncate(length);
    held.resize(static_cast<size_t>(sequence.length()));
  }
  // Of the engine's last pass; none: NaN, or nothing is allowed.
  std::optional<int32_t> sample(int64_t row) { return sample(row, held); }
  // `history`: what is held, in the numbers of the logits.
  std::optional<int32_t> sample(int64_t row, std::span<const int32_t> history) {
    const auto sampled = engine.has_logits(row) ? sampler.sample(engine.logits(row), history)
                                                : sampler.sample(engine.best(row));
    return sampled ? std::optional<int32_t>(*sampled) : std::nullopt;
  }

  Engine& engine;
  Sequence sequence;
  Sampler sampler;
  std::vector<int32_t> held;  // what the sequence holds, draft tokens too
};

// Computes `next` of each of `texts`, whose items say what else is needed; they hold it then.
// False: there is no room for the last one, and nothing was computed.
template <class Open>
Result<bool> forward_texts(Engine& engine, std::vector<BatchItem>& items,
                           const std::vector<Open>& texts) {
  for (size_t i = 0; i < items.size(); ++i) {
    items[i].sequence = &texts[i].text->sequence;
    items[i].tokens = texts[i].next;
    items[i].best = texts[i].text->sampler.best_needed();
  }
  if (KTX_TRY(engine.forward(items)) != Forward::Done) return false;
  for (const Open& open : texts) {
    open.text->held.insert(open.text->held.end(), open.next.begin(), open.next.end());
  }
  return true;
}

}  // namespace ktx::runtime

#include "lib/runtime/draft/plan_drafter.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "lib/runtime/draft/engine_drafter.h"

namespace ktx::runtime {
namespace {

// A text as the drafter has it.
struct PlanText : EngineText {
  using EngineText::EngineText;
  // A text that goes on later finds what was computed.
  ~PlanText() override { engine.cache().retire(std::move(sequence), held); }

  int64_t missing() const { return static_cast<int64_t>(ids.size() - held.size()); }

  std::vector<int32_t> seen;  // the text, in the model's tokens
  std::vector<int32_t> ids;   // and in the drafter's
  std::vector<size_t> ends;   // of ids, behind each of `seen`; empty: the ids are the same
};

class PlanDrafter : public EngineDrafter {
 public:
  PlanDrafter(std::unique_ptr<Engine> engine, DraftVocabulary vocabulary, int64_t model_vocab)
      : EngineDrafter(std::move(engine), model_vocab), vocabulary_(std::move(vocabulary)) {}

  std::string_view name() const override { return "draft plan"; }
  std::unique_ptr<DraftText> begin(const std::string& owner,
                                   const SamplingOptions& sampling) override;
  int64_t behind(DraftText& text, std::span<const int32_t> tokens) override;
  Status read(std::span<DraftItem> items, int64_t tokens) override;
  Status draft(std::span<DraftItem> items) override;

 private:
  void follow(PlanText& text, std::span<const int32_t> tokens) const;
  std::vector<Open> open(std::span<DraftItem> items);
  std::optional<Drafted> sample(EngineText& text, int64_t row) const override;

  const DraftVocabulary vocabulary_;
};

std::unique_ptr<DraftText> PlanDrafter::begin(const std::string& owner,
                                              const SamplingOptions& sampling) {
  SamplingOptions options = sampling;
  const int64_t vocab = engine_->vocab_size();
  // Token ids of the model: where they are the same, those that the drafter has.
  std::erase_if(options.logit_bias,
                [&](const auto& bias) { return !vocabulary_.same() || bias.first >= vocab; });
  if (!vocabulary_.same()) options.dry.breakers.clear();
  return std::make_unique<PlanText>(*engine_, owner, draft_sampler(options, vocab));
}

// Makes `ids` the text `tokens`, and what is held the beginning that the two have in common.
void PlanDrafter::follow(PlanText& text, std::span<const int32_t> tokens) const {
  const auto differ =
      std::mismatch(text.seen.begin(), text.seen.end(), tokens.begin(), tokens.end());
  const auto same = static_cast<size_t>(differ.first - text.seen.begin());
  text.seen.resize(same);
  text.seen.insert(text.seen.end(), tokens.begin() + static_cast<ptrdiff_t>(same), tokens.end());
  if (vocabulary_.same()) {
    text.ids.resize(same);
    // A token that the drafter does not have only makes its draft tokens worse.
    const auto vocab = static_cast<int32_t>(engine_->vocab_size());
    for (const int32_t id : tokens.subspan(same)) text.ids.push_back(id < vocab ? id : 0);
  } else {
    text.ends.resize(same);
    text.ids.resize(same == 0 ? 0 : text.ends.back());
    for (const int32_t id : tokens.subspan(same)) {
      if (id >= 0) {  // else of an image
        const std::vector<int32_t>& ids = vocabulary_.to_draft[static_cast<size_t>(id)];
        text.ids.insert(text.ids.end(), ids.begin(), ids.end());
      }
      text.ends.push_back(text.ids.size());
    }
  }
  const auto held =
      std::mismatch(text.held.begin(), text.held.end(), text.ids.begin(), text.ids.end());
  // The last token is computed in any case: what follows it is wanted.
  const auto kept =
      std::min<int64_t>(held.first - text.held.begin(), static_cast<int64_t>(text.ids.size()) - 1);
  text.truncate(std::max<int64_t>(0, kept));
}

int64_t PlanDrafter::behind(DraftText& given, std::span<const int32_t> tokens) {
  auto& text = static_cast<PlanText&>(given);
  follow(text, tokens);
  if (text.held.empty() && !text.ids.empty()) {
    const PrefixHit hit = engine_->cache().reuse(text.sequence, text.ids);
    text.held.assign(text.ids.begin(), text.ids.begin() + hit.tokens);
  }
  return text.missing() <= kNearTokens ? 0 : text.missing();
}

// The texts that can get draft tokens: within the context, and with a token that says what comes
// next.
std::vector<PlanDrafter::Open> PlanDrafter::open(std::span<DraftItem> items) {
  std::vector<Open> texts;
  for (DraftItem& item : items) {
    item.draft_tokens.clear();
    auto& text = static_cast<PlanText&>(*item.text);
    const bool near = behind(text, item.tokens) == 0;
    const int64_t room = engine_->ctx() - static_cast<int64_t>(text.ids.size());
    item.most = std::min({item.most, room, engine_->rollback_tokens()});
    if (!near || item.most <= 0 || text.missing() == 0) continue;
    if (static_cast<int64_t>(texts.size()) == engine_->max_batch()) break;
    texts.push_back({&item, &text, {text.ids.begin() + text.held.size(), text.ids.end()}});
    text.sampler.set_state(item.sampler->state());
  }
  return texts;
}

Status PlanDrafter::read(std::span<DraftItem> items, int64_t tokens) {
  for (DraftItem& item : items) {
    auto& text = static_cast<PlanText&>(*item.text);
    while (tokens > 0 && behind(text, item.tokens) > 0) {
      if (static_cast<int64_t>(text.ids.size()) > engine_->ctx()) break;
      const int64_t count = std::min({text.missing() - 1, tokens, engine_->chunk_tokens()});
      const auto from = text.ids.begin() + static_cast<ptrdiff_t>(text.held.size());
      std::vector<Open> open;
      open.push_back({&item, &text, {from, from + count}});
      KTX_TRY(forward(open, Want::None));
      if (open.empty()) break;
      tokens -= count;
      engine_->cache().keep(text.sequence, text.held);
    }
  }
  return {};
}

std::optional<EngineDrafter::Drafted> PlanDrafter::sample(EngineText& text, int64_t row) const {
  const std::optional<int32_t> id = text.sample(row, text.held);
  if (!id) return std::nullopt;
  return Drafted{*id, vocabulary_.same() ? *id : vocabulary_.from_draft[static_cast<size_t>(*id)]};
}

Status PlanDrafter::draft(std::span<DraftItem> items) {
  const Timer timer;
  first_seconds_ = 0;
  std::vector<Open> texts = open(items);
  // A few tokens of each: those that do not fit a step wait for the next pass.
  int64_t left = engine_->chunk_tokens();
  std::erase_if(texts, [&](const Open& open) {
    const auto count = static_cast<int64_t>(open.next.size());
    if (count > left) return true;
    left -= count;
    return false;
  });
  KTX_TRY(forward(texts, Want::Last));
  return draft_on(texts, timer);
}

}  // namespace

Result<std::unique_ptr<Drafter>> make_plan_drafter(std::unique_ptr<Engine> engine,
                                                   DraftVocabulary vocabulary,
                                                   int64_t model_vocab) {
  if (engine->rollback_tokens() == 0) {
    return Error{fmt::format(
        "{} has layers with states of a fixed size (delta nets), and there is no room to take "
        "draft tokens back",
        engine->plan().facts.family)};
  }
  if (!vocabulary.same()) {
    if (static_cast<int64_t>(vocabulary.from_draft.size()) < engine->vocab_size()) {
      vocabulary.from_draft.resize(static_cast<size_t>(engine->vocab_size()), -1);
    }
    if (static_cast<int64_t>(vocabulary.to_draft.size()) < model_vocab) {
      vocabulary.to_draft.resize(static_cast<size_t>(model_vocab));
    }
  }
  return std::unique_ptr<Drafter>(
      std::make_unique<PlanDrafter>(std::move(engine), std::move(vocabulary), model_vocab));
}

}  // namespace ktx::runtime

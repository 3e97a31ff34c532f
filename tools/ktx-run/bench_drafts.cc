#include "tools/ktx-run/bench_drafts.h"

#include <fmt/format.h>

#include <algorithm>

#include "lib/runtime/draft/acceptance.h"
#include "lib/runtime/engine/forward_watch.h"
#include "lib/support/timer.h"
#include "tools/ktx-run/interrupt.h"

namespace ktx::tools {
namespace {

// One of the sequences.
struct DraftedText {
  explicit DraftedText(runtime::Sequence sequence) : sequence(std::move(sequence)) {}
  runtime::Sequence sequence;
  std::vector<int32_t> tokens;
  runtime::Speculation::Text draft;
  std::vector<int32_t> step;  // the last token and draft tokens
  int64_t begin = 0;
  // What the text goes on with, whatever the model says; null: with what it says. Draft tokens are
  // made of it then, and on a GPU a model of random weights soon says something else.
  const std::vector<int32_t>* answer = nullptr;
  int64_t produced() const { return static_cast<int64_t>(tokens.size()) - begin; }
};

std::unique_ptr<runtime::ScriptedDrafter> script_of(const runtime::Engine& engine,
                                                    runtime::Drafter* drafter,
                                                    std::optional<double> acceptance) {
  if (!acceptance) return nullptr;
  return std::make_unique<runtime::ScriptedDrafter>(runtime::ScriptedDraft{
      .acceptance = *acceptance, .vocab_size = engine.vocab_size(), .cost_of = drafter});
}

Result<int32_t> draft_best_token(const runtime::Engine& engine, int64_t row) {
  return engine.has_logits(row) ? runtime::best_token(engine.logits(row))
                                : runtime::best_token(engine.best(row));
}

runtime::Speculation::Item draft_item(DraftedText& text, const runtime::Sampler& sampler) {
  runtime::Speculation::Item item;
  item.text = &text.draft;
  item.tokens = text.tokens;
  item.sampler = &sampler;
  return item;
}

Status forward_all(runtime::Engine& engine, std::span<const runtime::BatchItem> items) {
  const runtime::ForwardWatch watch{&interrupt_flag(), {}};
  const runtime::Forward done = KTX_TRY(engine.forward(items, {}, &watch));
  if (done == runtime::Forward::Done) return {};
  if (done == runtime::Forward::Stopped) return Error{"stopped"};
  return Error{fmt::format("the test needs a larger context than {}; give --ctx", engine.ctx())};
}

// All tokens but the last one. `speculation` sees them; null: none does.
Status feed_prompt(runtime::Engine& engine, const runtime::Sampler& sampler,
                   runtime::Speculation* speculation, DraftedText& text) {
  const std::span<const int32_t> ids(text.tokens.data(), text.tokens.size() - 1);
  for (size_t at = 0; at < ids.size();) {
    const auto count = std::min<size_t>(ids.size() - at, engine.chunk_tokens());
    const runtime::BatchItem item{&text.sequence, ids.subspan(at, count), runtime::Want::Last, 1};
    KTX_TRY(forward_all(engine, {&item, 1}));
    if (speculation != nullptr) {
      speculation->computed(draft_item(text, sampler), engine,
                            {0, static_cast<int64_t>(at), static_cast<int64_t>(count)});
    }
    at += count;
  }
  return {};
}

}  // namespace

BenchDrafts::BenchDrafts(runtime::Engine& engine, runtime::Drafter* drafter,
                         const runtime::SpeculationOptions& options,
                         std::optional<double> acceptance)
    : engine_(engine),
      acceptance_(acceptance),
      script_(script_of(engine, drafter, acceptance)),
      speculation_(script_ ? *script_ : *drafter, options) {}

Result<BenchRun> BenchDrafts::record(int64_t count, int64_t sequences, int64_t depth) {
  answers_.clear();
  return KTX_TRY(generate(count, sequences, depth, 0)).speed;
}

Result<DraftRun> BenchDrafts::run(int64_t count, int64_t sequences, int64_t depth) {
  if (script_) script_->set_answers(answers_);
  return generate(count, sequences, depth, speculation_.options().most);
}

Result<DraftRun> BenchDrafts::generate(int64_t count, int64_t sequences, int64_t depth,
                                       int64_t most) {
  const runtime::Sampler greedy =
      KTX_TRY(runtime::Sampler::create(runtime::greedy_sampling(), engine_.vocab_size()));
  std::vector<DraftedText> texts;
  for (int64_t i = 0; i < sequences; ++i) {
    DraftedText& text = texts.emplace_back(engine_.new_sequence());
    text.tokens = bench_tokens(depth + 1, engine_.vocab_size(), static_cast<uint64_t>(i));
    text.begin = depth + 1;
    if (most > 0 && script_) text.answer = &answers_[static_cast<size_t>(i)];
    KTX_TRY(feed_prompt(engine_, greedy, most > 0 ? &speculation_ : nullptr, text));
  }
  DraftRun result;
  const int64_t bytes = engine_.stats().weight_bytes;
  const Timer timer;
  for (;;) {
    std::vector<runtime::Speculation::Item> items;
    std::vector<DraftedText*> whose;
    for (DraftedText& text : texts) {
      if (text.produced() >= count) continue;
      runtime::Speculation::Item item = draft_item(text, greedy);
      item.limit = std::min({most, count - text.produced() - 1, engine_.rollback_tokens()});
      items.push_back(item);
      whose.push_back(&text);
    }
    if (items.empty()) break;
    speculation_.draft(items, 0, engine_.chunk_tokens() - static_cast<int64_t>(items.size()));
    std::vector<runtime::BatchItem> batch;
    int64_t tokens = 0;
    for (size_t i = 0; i < items.size(); ++i) {
      DraftedText& text = *whose[i];
      text.step.assign(1, text.tokens.back());
      text.step.insert(text.step.end(), items[i].draft_tokens.begin(), items[i].draft_tokens.end());
      tokens += static_cast<int64_t>(text.step.size());
      batch.push_back({&text.sequence, text.step, runtime::Want::All, 1});
      batch.back().rollback = std::ssize(items[i].draft_tokens);
    }
    const Timer pass;
    KTX_TRY(forward_all(engine_, batch));
    const double taken = pass.seconds();
    int64_t first = 0;
    for (size_t i = 0; most > 0 && i < items.size(); ++i) {
      const auto count_of = static_cast<int64_t>(whose[i]->step.size());
      const int64_t begin = whose[i]->sequence.length() - count_of;
      speculation_.computed(items[i], engine_, {first, begin, count_of});
      first += count_of;
    }
    speculation_.passed(tokens, taken);
    ++result.passes;
    int64_t row = 0;
    for (DraftedText* text : whose) {
      const auto drafted = static_cast<int64_t>(text->step.size()) - 1;
      int64_t right = 0;
      for (int64_t r = 0; r <= drafted; ++r) {
        const int32_t best = KTX_TRY(draft_best_token(engine_, row + r));
        const std::vector<int32_t>* const answer = text->answer;
        text->tokens.push_back(answer != nullptr ? (*answer)[text->tokens.size()] : best);
        result.same &= text->tokens.back() == best;
        if (r == drafted || text->tokens.back() != text->step[static_cast<size_t>(r) + 1]) break;
        ++right;
      }
      row += drafted + 1;
      text->sequence.truncate(static_cast<int64_t>(text->tokens.size()) - 1);
      speculation_.verified(text->draft, drafted, right);
      result.drafted += drafted;
      result.accepted += right;
    }
  }
  const double seconds = timer.seconds();
  result.speed = {static_cast<double>(count * sequences) / seconds,
                  static_cast<double>(engine_.stats().weight_bytes - bytes) / seconds};
  if (most == 0) {
    for (DraftedText& text : texts) answers_.push_back(text.tokens);
    return result;
  }
  for (size_t i = 0; i < texts.size() && i < answers_.size(); ++i) {
    result.same &= texts[i].tokens == answers_[i];
  }
  // Each text's passes, which give it the right draft tokens and the token behind them.
  const auto text_passes = static_cast<double>(count * sequences - result.accepted);
  const auto draft_tokens =
      static_cast<int64_t>(static_cast<double>(result.drafted) / text_passes + 0.5);
  const double tokens = acceptance_ ? runtime::expected_tokens(*acceptance_, draft_tokens)
                                    : 1 + static_cast<double>(result.accepted) / text_passes;
  result.predicted_rate = tokens * static_cast<double>(sequences) /
                          speculation_.pace().predicted(sequences, draft_tokens);
  return result;
}

}  // namespace ktx::tools

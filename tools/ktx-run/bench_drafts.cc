#include "tools/ktx-run/bench_drafts.h"

#include <fmt/format.h>

#include <algorithm>

#include "lib/runtime/draft/acceptance.h"
#include "lib/runtime/session/text_run.h"
#include "lib/support/timer.h"
#include "tools/ktx-run/interrupt.h"

namespace ktx::tools {
namespace {

// One of the sequences.
struct DraftedText : runtime::TextRun {
  using TextRun::TextRun;
  int64_t begin = 0;
  // What the text goes on with, whatever the model says; null: with what it says. Draft tokens are
  // made of it then, and on a GPU a model of random weights soon says something else.
  const std::vector<int32_t>* answer = nullptr;
  int64_t produced() const { return std::ssize(tokens) - begin; }
};

std::unique_ptr<runtime::ScriptedDrafter> script_of(const runtime::Engine& engine,
                                                    runtime::Drafter* drafter,
                                                    std::optional<double> acceptance) {
  if (!acceptance) return nullptr;
  return std::make_unique<runtime::ScriptedDrafter>(runtime::ScriptedDraft{
      .acceptance = *acceptance, .vocab_size = engine.vocab_size(), .cost_of = drafter});
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
    DraftedText& text = texts.emplace_back(greedy);
    text.sequence = engine_.new_sequence({}, engine_.own_lora());
    text.tokens = bench_tokens(depth + 1, engine_.vocab_size(), static_cast<uint64_t>(i));
    text.begin = depth + 1;
    if (most > 0 && script_) text.answer = &answers_[static_cast<size_t>(i)];
    text.take(depth);
    KTX_TRY(check_forward(engine_, KTX_TRY(text.compute(engine_, 1, {.stop = &interrupt_flag()},
                                                        most > 0 ? &speculation_ : nullptr))));
  }
  DraftRun result;
  const int64_t bytes = engine_.stats().weight_bytes;
  const Timer timer;
  for (;;) {
    std::vector<runtime::Speculation::Item> items;
    std::vector<DraftedText*> whose;
    for (DraftedText& text : texts) {
      if (text.produced() >= count) continue;
      text.take(1);
      items.push_back(text.draft_item(
          std::min({most, count - text.produced() - 1, engine_.rollback_tokens()})));
      whose.push_back(&text);
    }
    if (items.empty()) break;
    speculation_.draft(items, 0, engine_.chunk_tokens() - std::ssize(items));
    std::vector<runtime::BatchItem> batch;
    int64_t tokens = 0;
    for (size_t i = 0; i < items.size(); ++i) {
      whose[i]->take_draft(items[i]);
      tokens += std::ssize(whose[i]->step_ids);
      batch.push_back(whose[i]->item());
      batch.back().best = 1;
    }
    const Timer pass;
    KTX_TRY(bench_forward(engine_, batch));
    const double taken = pass.seconds();
    int64_t row = 0;
    for (size_t i = 0; most > 0 && i < items.size(); ++i) {
      const int64_t own = std::ssize(whose[i]->step_ids);
      whose[i]->show_hidden(speculation_, engine_, std::exchange(row, row + own), own);
    }
    speculation_.passed(tokens, taken);
    ++result.passes;
    row = 0;
    for (DraftedText* text : whose) {
      const int64_t next = row + std::ssize(text->step_ids);
      do {
        const int32_t best = KTX_TRY(bench_best_token(engine_, row++));
        const std::vector<int32_t>* const answer = text->answer;
        text->tokens.push_back(answer != nullptr ? (*answer)[text->tokens.size()] : best);
        result.same &= text->tokens.back() == best;
      } while (text->verify());
      row = next;
      result.drafted += text->draft_tokens;
      result.accepted += text->right_draft_tokens;
      text->end_draft(&speculation_);
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

// ktx-run perplexity: how well a model predicts a text, and how far its predictions are from
// another model's, whose log-probabilities were written before.
//
// Definitions are llama.cpp's (lib/runtime/quality/divergence.h, scored_contexts.h), so that
// figures and files of log-probabilities compare.
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <optional>

#include "lib/runtime/quality/divergence.h"
#include "lib/runtime/quality/logits_file.h"
#include "lib/runtime/quality/text_logits.h"
#include "lib/support/timer.h"
#include "tools/ktx-run/commands.h"
#include "tools/ktx-run/interrupt.h"
#include "tools/ktx-run/loaded_model.h"
#include "tools/ktx-run/quality_report.h"
#include "tools/ktx-run/report.h"
#include "tools/ktx-run/scored_contexts.h"

namespace ktx::tools {
namespace {

using runtime::Divergence;

struct Files {
  std::optional<runtime::LogitsFile> base;
  std::optional<runtime::LogitsWriter> saved;
};

// One place; called by several threads at once.
Result<Divergence> score_place(Files& files, int64_t context, int64_t place, int32_t next,
                               std::span<const float> logits) {
  if (files.saved) KTX_TRY(files.saved->write(context, place, logits));
  if (!files.base) {
    return Divergence{.logprob = KTX_TRY(runtime::logprobs(logits, next, 0)).logprob};
  }
  std::vector<float> base(logits.size());
  KTX_TRY(files.base->read(context, place, base));
  return runtime::divergence(base, logits, next);
}

// True: Ctrl-C ended it.
Result<bool> score_context(runtime::Engine& engine, const Contexts& contexts, int64_t number,
                           Files& files, runtime::DivergenceSum& sum) {
  const int64_t first = runtime::first_scored(contexts.context);
  std::vector<Result<Divergence>> places(
      static_cast<size_t>(runtime::scored_places(contexts.context)), Divergence());
  runtime::TextLogits text(engine);
  const runtime::Forward result =
      KTX_TRY(text.compute(contexts.computed(number), first, &interrupt_flag(),
                           [&](int64_t i, std::span<const float> logits) {
                             const int64_t place = i - first;
                             places[static_cast<size_t>(place)] = score_place(
                                 files, number, place, contexts.next(number, place), logits);
                           }));
  if (KTX_TRY(check_scored(result))) return true;
  for (const Result<Divergence>& place : places) sum.add(KTX_TRY(place));
  return false;
}

void print_text(const runtime::Engine& engine, const Contexts& contexts, int64_t done,
                bool has_base, const runtime::DivergenceSum& sum) {
  const runtime::Estimate perplexity = runtime::perplexity(sum.negative_logprobs());
  fmt::print("{}", has_base ? divergence_text(sum)
                            : fmt::format("perplexity           {:.4f} ± {:.4f}\n",
                                          perplexity.value, perplexity.error));
  fmt::print("text                 {} contexts of {} tokens, {} of them scored\n", done,
             contexts.context, sum.count());
  fmt::print("run                  {}\n", run_text(engine));
}

void print_json(const runtime::Engine& engine, const Contexts& contexts, int64_t done,
                bool has_base, const runtime::DivergenceSum& sum, double seconds) {
  nlohmann::ordered_json json = {
      {"perplexity", estimate_json(runtime::perplexity(sum.negative_logprobs()))},
      {"context", contexts.context},
      {"contexts", done},
      {"scored_tokens", sum.count()}};
  if (has_base) json.update(divergence_json(sum));
  json.update(run_json(engine));
  json["seconds"] = seconds;
  fmt::print("{}\n", json.dump());
}

// True when Ctrl-C ended it.
Result<bool> measure_perplexity(const Options& options) {
  Files files;
  EngineFlags flags = options.engine;
  if (!options.score.base.empty()) {
    files.base.emplace(KTX_TRY(runtime::LogitsFile::open(options.score.base)));
    flags.ctx = files.base->head().context;
  } else if (flags.ctx == 0) {
    flags.ctx = kScoredContext;
  }
  LoadedModel model = KTX_TRY(load_model(options.plan, scoring_flags(flags, flags.ctx)));
  KTX_TRY(check_generates(options.plan, model.engine->plan().facts));
  runtime::Engine& engine = *model.engine;
  for (const std::string& line : model.notes) note(line);
  const Contexts contexts = files.base
                                ? KTX_TRY(contexts_of(options, *files.base, options.score.base,
                                                      model.tokenizer, engine.vocab_size()))
                                : KTX_TRY(read_contexts(options, model.tokenizer));
  if (!options.score.save_logits.empty()) {
    const std::span<const int32_t> tokens(contexts.tokens);
    files.saved.emplace(KTX_TRY(runtime::LogitsWriter::open(
        options.score.save_logits, {contexts.context, engine.vocab_size(), contexts.count},
        tokens.first(static_cast<size_t>(contexts.context * contexts.count)))));
  }
  catch_interrupts(SecondInterrupt::Ends);
  ContextProgress progress("perplexity", contexts);
  const Timer timer;
  runtime::DivergenceSum sum;
  int64_t done = 0;
  bool stopped = false;
  while (done < contexts.count && !stopped) {
    stopped = KTX_TRY(score_context(engine, contexts, done, files, sum));
    if (!stopped) ++done;
    progress.show(done, runtime::perplexity(sum.negative_logprobs()).value);
  }
  progress.erase();
  if (files.base) KTX_TRY(files.base->check());
  if (files.saved && !stopped) KTX_TRY(files.saved->finish());
  if (done == 0) return stopped;
  if (options.json) {
    print_json(engine, contexts, done, files.base.has_value(), sum, timer.seconds());
  } else {
    print_text(engine, contexts, done, files.base.has_value(), sum);
  }
  return stopped;
}

}  // namespace

int run_perplexity(const Options& options) {
  const Result<bool> ended = measure_perplexity(options);
  if (!ended) return fail(ended.error().message);
  return *ended ? end_interrupted() : 0;
}

}  // namespace ktx::tools

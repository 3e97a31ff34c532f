// ktx-run compare: how far the second plan's predictions of a text are from the first one's, and
// with --layers at which layer the two part.
//
// Both compute the same tokens side by side, pass by pass. The figures are those of
// `perplexity --save-logits` and `--base`, without the rounding of the file.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "lib/runtime/quality/divergence.h"
#include "lib/runtime/quality/layer_streams.h"
#include "lib/runtime/quality/text_logits.h"
#include "tools/ktx-run/commands.h"
#include "tools/ktx-run/interrupt.h"
#include "tools/ktx-run/loaded_model.h"
#include "tools/ktx-run/quality_report.h"
#include "tools/ktx-run/report.h"
#include "tools/ktx-run/scored_contexts.h"

namespace ktx::tools {
namespace {

// The first plan or the second one.
struct Side {
  std::string path;
  LoadedModel model;
  std::unique_ptr<runtime::LayerStreams> streams;  // null: not asked for

  runtime::Engine& engine() { return *model.engine; }
};

Result<Side> open_side(const std::string& path, EngineFlags flags, bool layers) {
  std::unique_ptr<runtime::LayerStreams> streams;
  if (layers) {
    streams = std::make_unique<runtime::LayerStreams>();
    flags.on_result = [streams = streams.get()](const runtime::StepResult& result) {
      streams->take(result);
    };
  }
  Side side{path, KTX_TRY(load_model(path, flags)), std::move(streams)};
  KTX_TRY(check_generates(path, side.model.engine->plan().facts));
  for (const std::string& line : side.model.notes) note(fmt::format("{}: {}", path, line));
  return side;
}

Status check_pair(Side& base, Side& other) {
  if (base.engine().vocab_size() != other.engine().vocab_size()) {
    return Error{fmt::format("{} has a vocabulary of {}, {} one of {}; they cannot be compared",
                             base.path, base.engine().vocab_size(), other.path,
                             other.engine().vocab_size())};
  }
  return {};
}

// What is compared so far.
struct Sums {
  runtime::DivergenceSum divergence;
  runtime::StreamDifferences streams;
};

// True: Ctrl-C ended it.
Result<bool> compare_context(Side& base, Side& other, const Contexts& contexts, int64_t number,
                             Sums& sums) {
  const int64_t first = runtime::first_scored(contexts.context);
  const std::vector<int32_t> tokens = contexts.computed(number);
  runtime::TextLogits texts[2] = {runtime::TextLogits(base.engine()),
                                  runtime::TextLogits(other.engine())};
  const int64_t rows = std::min(texts[0].rows_of_pass(), texts[1].rows_of_pass());
  const auto vocabulary = static_cast<size_t>(base.engine().vocab_size());
  std::vector<float> logprobs(static_cast<size_t>(rows) * vocabulary);
  std::vector<Result<runtime::Divergence>> places;
  const auto row = [&](int64_t i) {
    return std::span(logprobs).subspan(static_cast<size_t>(i) * vocabulary, vocabulary);
  };
  for (int64_t begin = 0; begin < std::ssize(tokens);) {
    const bool scored = begin >= first;
    const int64_t count = scored ? std::min(rows, std::ssize(tokens) - begin) : first;
    const std::span<const int32_t> part =
        std::span(tokens).subspan(static_cast<size_t>(begin), static_cast<size_t>(count));
    places.assign(static_cast<size_t>(count), runtime::Divergence());
    std::vector<Status> statuses(static_cast<size_t>(count));
    for (Side* side : {&base, &other}) {
      if (side->streams) side->streams->clear();
      const auto visit = [&](int64_t i, std::span<const float> logits) {
        const auto at = static_cast<size_t>(i);
        if (side == &base) {
          statuses[at] = runtime::all_logprobs(logits, row(i));
        } else if (statuses[at]) {
          places[at] =
              runtime::divergence(row(i), logits, contexts.next(number, begin + i - first));
        }
      };
      const runtime::Forward result = KTX_TRY(
          texts[side == &other].compute(part, scored ? 0 : count, &interrupt_flag(), visit));
      if (KTX_TRY(check_scored(result))) return true;
    }
    begin += count;
    if (!scored) continue;
    for (size_t i = 0; i < places.size(); ++i) {
      KTX_TRY(statuses[i]);
      sums.divergence.add(KTX_TRY(places[i]));
    }
    if (base.streams) sums.streams.add(*base.streams, *other.streams);
  }
  return false;
}

void print_text(Side& base, Side& other, const Contexts& contexts, int64_t done, const Sums& sums) {
  fmt::print("{}", divergence_text(sums.divergence));
  fmt::print("text                 {} contexts of {} tokens, {} of them scored\n", done,
             contexts.context, sums.divergence.count());
  fmt::print("base                 {}: {}\n", base.path, run_text(base.engine()));
  fmt::print("run                  {}: {}\n", other.path, run_text(other.engine()));
  if (base.streams) fmt::print("\n{}", layers_text(sums.streams.all()));
}

void print_json(Side& base, Side& other, const Contexts& contexts, int64_t done, const Sums& sums) {
  nlohmann::ordered_json json = {
      {"perplexity", estimate_json(runtime::perplexity(sums.divergence.negative_logprobs()))},
      {"context", contexts.context},
      {"contexts", done},
      {"scored_tokens", sums.divergence.count()}};
  json.update(divergence_json(sums.divergence));
  json["base"] = run_json(base.engine());
  json["run"] = run_json(other.engine());
  if (base.streams) json["layers"] = layers_json(sums.streams.all());
  fmt::print("{}\n", json.dump());
}

// True when Ctrl-C ended it.
Result<bool> compare(const Options& options) {
  const int64_t context = options.engine.ctx > 0 ? options.engine.ctx : kScoredContext;
  const EngineFlags flags = scoring_flags(options.engine, context);
  EngineFlags base_flags = flags;
  if (!options.score.base_precision.empty()) base_flags.precision = options.score.base_precision;
  Side base = KTX_TRY(open_side(options.plan, base_flags, options.score.layers));
  Side other = KTX_TRY(open_side(options.score.other_plan, flags, options.score.layers));
  KTX_TRY(check_pair(base, other));
  const Contexts contexts = KTX_TRY(read_contexts(options, base.model.tokenizer));
  catch_interrupts(SecondInterrupt::Ends);
  ContextProgress progress("compare", contexts);
  Sums sums;
  int64_t done = 0;
  bool stopped = false;
  while (done < contexts.count && !stopped) {
    stopped = KTX_TRY(compare_context(base, other, contexts, done, sums));
    if (!stopped) ++done;
    progress.show(done, runtime::perplexity(sums.divergence.negative_logprobs()).value);
  }
  progress.erase();
  if (done == 0) return stopped;
  options.json ? print_json(base, other, contexts, done, sums)
               : print_text(base, other, contexts, done, sums);
  return stopped;
}

}  // namespace

int run_compare(const Options& options) {
  const Result<bool> ended = compare(options);
  if (!ended) return fail(ended.error().message);
  return *ended ? end_interrupted() : 0;
}

}  // namespace ktx::tools

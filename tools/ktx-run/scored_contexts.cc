#include "tools/ktx-run/scored_contexts.h"

#include <fmt/format.h>

#include <algorithm>

#include "lib/runtime/quality/text_logits.h"
#include "lib/support/piped_text.h"

namespace ktx::tools {
namespace {

int32_t bos_of(const text::Tokenizer& tokenizer) {
  return tokenizer.data().add_bos ? tokenizer.bos() : -1;
}

int64_t at_most(int64_t contexts, const ScoreFlags& flags) {
  return flags.contexts > 0 ? std::min(contexts, flags.contexts) : contexts;
}

}  // namespace

std::vector<int32_t> Contexts::computed(int64_t number) const {
  const auto begin = tokens.begin() + number * context;
  std::vector<int32_t> ids(begin, begin + context - 1);
  if (bos >= 0) ids[0] = bos;
  return ids;
}

Result<Contexts> read_contexts(const Options& options, const text::Tokenizer& tokenizer) {
  PipedText input = KTX_TRY(read_piped_text(options.score.file, size_t{1} << 30));
  // The newline at the end of a file is not the text's, as llama.cpp has it.
  if (!input.text.empty() && input.text.back() == '\n') input.text.pop_back();
  Contexts contexts;
  contexts.context = options.engine.ctx > 0 ? options.engine.ctx : kScoredContext;
  contexts.bos = bos_of(tokenizer);
  contexts.tokens = tokenizer.encode(input.text, {.add_bos = contexts.bos >= 0});
  const auto size = std::ssize(contexts.tokens);
  if (size < contexts.context) {
    return Error{
        fmt::format("{}: the text has {} tokens, fewer than a context of {}; take a longer "
                    "one, or --ctx {}",
                    piped_text_name(options.score.file), size, contexts.context,
                    std::max<int64_t>(4, size / 2))};
  }
  contexts.count = at_most(size / contexts.context, options.score);
  return contexts;
}

Result<Contexts> contexts_of(const Options& options, const runtime::LogitsFile& base,
                             const std::string& path, const text::Tokenizer& tokenizer,
                             int64_t vocabulary) {
  const runtime::LogitsHead& head = base.head();
  if (head.vocabulary != vocabulary) {
    return Error{
        fmt::format("{}: is of a model with a vocabulary of {}, that of {} has {}; they "
                    "cannot be compared",
                    path, head.vocabulary, options.plan, vocabulary)};
  }
  Contexts contexts;
  contexts.context = head.context;
  contexts.count = at_most(head.contexts, options.score);
  contexts.tokens.assign(base.tokens().begin(), base.tokens().end());
  contexts.bos = bos_of(tokenizer);
  return contexts;
}

EngineFlags scoring_flags(const EngineFlags& flags, int64_t context) {
  EngineFlags scoring = flags;
  scoring.ctx = context;
  scoring.max_batch = 1;
  scoring.sequence_logits = runtime::kScoredRows;
  return scoring;
}

Result<bool> check_scored(runtime::Forward result) {
  switch (result) {
    case runtime::Forward::Done:
      return false;
    case runtime::Forward::Stopped:
      return true;
    case runtime::Forward::ContextFull:
      return Error{"a text is longer than the context; a larger one: --ctx N"};
    case runtime::Forward::CacheFull:
      return Error{"the KV cache has no room for the text; give it more with --kv-budget"};
  }
  return false;
}

void ContextProgress::show(int64_t done, double perplexity) {
  if (!line_.is_seen()) return;
  const double tokens = static_cast<double>(done * contexts_.context);
  line_.show(fmt::format("{}: {} of {} contexts, {:.4f} so far, {:.0f} t/s", command_, done,
                         contexts_.count, perplexity, tokens / timer_.seconds()));
}

}  // namespace ktx::tools

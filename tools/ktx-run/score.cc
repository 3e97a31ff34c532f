// ktx-run score: log-probabilities of given texts.
//
// Texts are requests to the batch scheduler, as those of `echo` are to the server: as many side by
// side as --max-batch allows, in a context as long as the longest needs it, and the answers in the
// order of the lines.
#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>

#include "lib/runtime/quality/text_logits.h"
#include "lib/runtime/scheduler/batch_scheduler.h"
#include "lib/support/piped_text.h"
#include "lib/support/signal_block.h"
#include "lib/support/strings.h"
#include "tools/ktx-run/commands.h"
#include "tools/ktx-run/interrupt.h"
#include "tools/ktx-run/loaded_model.h"
#include "tools/ktx-run/progress_line.h"
#include "tools/ktx-run/report.h"
#include "tools/ktx-run/score_lines.h"

namespace ktx::tools {
namespace {

// Texts side by side where --max-batch does not say: those of a few words fill a pass together.
constexpr int64_t kTogether = 8;

struct Scored {
  ScoreTokens tokens;
  std::vector<runtime::Logprobs> logprobs;  // of the text's tokens, but of the first of all
  bool ended = false;
  std::string error;
};

// What the scheduler's thread fills and the printing one waits for.
struct Board {
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<Scored> scored;
};

runtime::GenerationRequest request_for(Board& board, size_t at) {
  runtime::GenerationRequest request;
  request.prompt = board.scored[at].tokens.ids;
  request.max_tokens = 0;
  request.prompt_logprobs = 1;
  request.first_prompt_logprobs = board.scored[at].tokens.begin;
  request.on_prompt_logprobs = [&board, at](int64_t, const runtime::Logprobs& logprobs) {
    board.scored[at].logprobs.push_back(logprobs);
  };
  request.on_end = [&board, at](const runtime::RequestEnd& end) {
    const std::lock_guard lock(board.mutex);
    board.scored[at].error = end.error;
    if (end.reason == runtime::EndReason::ContextFull) {
      board.scored[at].error = "the KV cache has no room for the text; give it more: --kv-budget";
    }
    board.scored[at].ended = true;
    board.changed.notify_all();
  };
  return request;
}

// The context is as long as the longest text and a token more, which the scheduler holds ready for
// an answer, or what --ctx says. Fails with the lines that are too long for it, or have nothing to
// score.
Status tokens_of_lines(const std::vector<ScoreLine>& lines, const std::string& name,
                       const std::string& path, EngineFlags& flags, Board& board) {
  const plan::PlanFile plan = KTX_TRY(plan::PlanFile::open(path));
  const plan::PlanFacts& facts = plan->facts;
  KTX_TRY(check_generates(path, facts));
  const text::Tokenizer tokenizer = KTX_TRY(tokenizer_of(path, plan.view()));
  int64_t longest = 1;
  std::vector<std::string> errors;
  for (const ScoreLine& line : lines) {
    auto tokens = score_tokens(line, tokenizer, facts.vocab_size);
    const int64_t size = tokens ? std::ssize(tokens->ids) : 0;
    if (!tokens) {
      errors.push_back(fmt::format("{}:{}: {}", name, line.number, tokens.error().message));
    } else if (flags.ctx > 0 && size >= flags.ctx) {
      errors.push_back(
          fmt::format("{}:{}: the text has {} tokens, the context {}; a larger one: --ctx {}", name,
                      line.number, size, flags.ctx, size + 1));
    } else {
      longest = std::max(longest, size);
      board.scored.push_back({tokens.take(), {}, false, {}});
    }
    if (errors.size() == kMostErrors) break;
  }
  if (!errors.empty()) return Error{join(errors, "\n")};
  if (flags.ctx == 0) flags.ctx = longest + 1;
  return {};
}

// True when Ctrl-C ended it.
Result<bool> print_scores(const std::vector<ScoreLine>& lines, Board& board) {
  ProgressLine progress;
  for (size_t i = 0; i < lines.size(); ++i) {
    std::unique_lock lock(board.mutex);
    while (!board.scored[i].ended) {
      board.changed.wait_for(lock, std::chrono::milliseconds(100));
      if (interrupted()) return true;
      progress.show(fmt::format("score: {} of {} texts", i, lines.size()));
    }
    const Scored& scored = board.scored[i];
    if (!scored.error.empty()) {
      return Error{fmt::format("line {}: {}", lines[i].number, scored.error)};
    }
    progress.erase();
    fmt::print("{}\n", score_answer(lines[i], scored.tokens, scored.logprobs));
    std::fflush(stdout);
    if (std::ferror(stdout) != 0) return false;  // finish.h says why
  }
  return false;
}

// True when Ctrl-C ended it.
Result<bool> score(const Options& options) {
  const std::string name = piped_text_name(options.score.file);
  const PipedText input = KTX_TRY(read_piped_text(options.score.file, size_t{1} << 30));
  const std::vector<ScoreLine> lines = KTX_TRY(parse_score_lines(input.text, name));
  EngineFlags flags = options.engine;
  Board board;
  KTX_TRY(tokens_of_lines(lines, name, options.plan, flags, board));
  if (flags.max_batch == 0) flags.max_batch = std::min<int64_t>(kTogether, std::ssize(lines));
  flags.sequence_logits = std::max<int64_t>(1, runtime::kScoredRows / flags.max_batch);
  LoadedModel model = KTX_TRY(load_model(options.plan, flags));
  for (const std::string& line : model.notes) note(line);
  catch_interrupts(SecondInterrupt::Ends);
  runtime::SchedulerOptions together;
  together.max_queue = std::ssize(lines);
  together.keep_prefixes = false;
  std::optional<runtime::BatchScheduler> scheduler;
  {
    const SignalBlock block;
    scheduler.emplace(*model.engine, together);
  }
  for (size_t i = 0; i < lines.size(); ++i) {
    runtime::BatchScheduler::Refused refused;
    if (scheduler->submit(request_for(board, i), &refused) != 0) continue;
    scheduler->stop();
    return Error{fmt::format("{}:{}: {}", name, lines[i].number, refused.message)};
  }
  const Result<bool> ended = print_scores(lines, board);
  scheduler->stop();
  return ended;
}

}  // namespace

int run_score(const Options& options) {
  const Result<bool> ended = score(options);
  if (!ended) return fail(ended.error().message);
  return *ended ? end_interrupted() : 0;
}

}  // namespace ktx::tools

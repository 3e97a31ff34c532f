#include "tools/ktx-run/answer.h"

#include <fmt/format.h>

#include "lib/support/timer.h"
#include "lib/text/tokenizer/detokenizer.h"
#include "tools/ktx-run/interrupt.h"
#include "tools/ktx-run/progress_line.h"

namespace ktx::tools {

const char* finish_reason(Finish finish) {
  constexpr const char* kNames[] = {"stop", "length", "length", "cancelled"};
  return kNames[static_cast<int>(finish)];
}

Result<runtime::Outcome> set_prompt_with_progress(runtime::Session& session,
                                                  std::span<const int32_t> ids) {
  ProgressLine line;
  const Timer timer;
  runtime::Session::Tick tick;
  if (line.is_seen()) {
    tick = [&](double done, int64_t total) {
      line.show(prompt_progress(done, total, timer.seconds()));
    };
  }
  session.watch(&interrupt_flag(), std::move(tick));
  auto outcome = session.set_prompt(ids);
  session.watch(&interrupt_flag());
  return outcome;
}

Result<Answer> run_answer(runtime::Session& session, const text::Tokenizer& tokenizer,
                          const AnswerOptions& options) {
  Answer answer;
  text::Detokenizer detokenizer(tokenizer, {.special = false, .at_start = false});
  const auto emit = [&](const std::string& text) {
    if (text.empty()) return;
    answer.text += text;
    if (options.on_text) options.on_text(text);
  };
  while (true) {
    if (options.max_tokens >= 0 && static_cast<int64_t>(answer.ids.size()) >= options.max_tokens) {
      answer.finish = Finish::Length;
      break;
    }
    if (options.cancelled && options.cancelled()) {
      answer.finish = Finish::Cancelled;
      break;
    }
    runtime::Next next;
    const auto decided = options.budget ? options.budget->decided() : std::nullopt;
    if (decided) {
      next = {KTX_TRY(session.prefill({&*decided, 1})), *decided};
    } else {
      next = KTX_TRY(session.next());
    }
    if (next.outcome == runtime::Outcome::Stopped) {
      answer.finish = Finish::Cancelled;
      break;
    }
    if (next.outcome != runtime::Outcome::Ok) {
      answer.finish = Finish::ContextFull;
      break;
    }
    answer.ids.push_back(next.id);
    if (options.budget) KTX_TRY(options.budget->accept(next.id));
    if (options.logprobs >= 0) {
      answer.logprobs.push_back(
          KTX_TRY(runtime::logprobs(session.logits(), next.id, options.logprobs)));
    }
    if (tokenizer.is_eog(next.id)) {
      answer.finish = Finish::Stop;
      break;
    }
    if (options.on_control && tokenizer.is_control(next.id)) {
      emit(detokenizer.finish());
      const std::string_view token = tokenizer.piece(next.id);
      if (options.on_control(token)) emit(std::string(token));
    } else {
      emit(detokenizer.add(next.id));
    }
  }
  emit(detokenizer.finish());
  return answer;
}

std::string speed_line(const runtime::SessionStats& stats) {
  std::string line = fmt::format(
      "prompt: {} tokens, {:.1f} t/s ({} from the cache) | answer: {} tokens, {:.1f} t/s",
      stats.prompt_tokens, stats.prompt_rate(), stats.reused_tokens, stats.decode_tokens,
      stats.decode_rate());
  if (stats.drafted_tokens > 0) {
    line +=
        fmt::format(" | {} of {} draft tokens right", stats.accepted_tokens, stats.drafted_tokens);
  }
  return line;
}

}  // namespace ktx::tools

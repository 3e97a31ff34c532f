// One answer: tokens sampled until the model ends it, a limit is reached or the user stops it,
// with text that is valid UTF-8 at every moment.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lib/runtime/session/session.h"
#include "lib/server/filters/reasoning_budget.h"
#include "lib/support/result.h"
#include "lib/text/tokenizer/tokenizer.h"

namespace ktx::tools {

// Why it ended: "stop" (the model's end token), "length" (the limit, or the context
// is full) or "cancelled".
enum class Finish { Stop, Length, ContextFull, Cancelled };
const char* finish_reason(Finish finish);

struct AnswerOptions {
  int64_t max_tokens = -1;  // -1: no limit but the context
  int logprobs = -1;        // how many of the best tokens to note per step; -1: none
  std::function<void(const std::string&)> on_text;  // pieces of text, valid UTF-8
  // Gets a control token as it is written; true where it is text (the tags of reasoning).
  std::function<bool(std::string_view)> on_control;
  server::ReasoningBudget* budget = nullptr;  // decides the tokens that end the reasoning
  std::function<bool()> cancelled;            // polled before each token
};

struct Answer {
  std::vector<int32_t> ids;  // the end token included
  std::string text;          // without it
  std::vector<runtime::Logprobs> logprobs;
  Finish finish = Finish::Stop;
};

// Session::set_prompt with a progress line on a terminal; Ctrl-C (interrupt.h) stops this and
// what follows in the session.
Result<runtime::Outcome> set_prompt_with_progress(runtime::Session& session,
                                                  std::span<const int32_t> ids);

// `session` must have been prefilled.
Result<Answer> run_answer(runtime::Session& session, const text::Tokenizer& tokenizer,
                          const AnswerOptions& options);

// "prompt: 12 tokens, 345.6 t/s (0 from the cache) | answer: 53 tokens, 101.2 t/s", then the
// draft tokens where there were any.
std::string speed_line(const runtime::SessionStats& stats);

}  // namespace ktx::tools

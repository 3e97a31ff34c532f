// The parts of answers that OpenAI's endpoints share.
#pragma once

#include <string>
#include <string_view>

#include "lib/server/answer/answer_job.h"
#include "lib/server/http/json_fields.h"

namespace ktx::server {

// "chatcmpl-" and 24 hexadecimal digits, not to be guessed.
std::string new_id(std::string_view prefix);

// "data: {...}\n\n".
inline constexpr std::string_view kEventStream = "text/event-stream; charset=utf-8";
std::string sse(const Json& event);
// "event: NAME\ndata: {...}\n\n".
std::string sse(std::string_view name, const Json& event);

// OpenAI's answer to `.../input_tokens`.
void send_input_tokens(HttpReply& reply, size_t tokens);

// llama.cpp's `timings` of one answer, and why the cache did not hit.
Json timings_json(const runtime::RequestEnd& end);
// llama.cpp's `prompt_progress`.
Json progress_json(const runtime::PromptProgress& progress);

// Sums over the choices of a request; a prompt counts once.
class Usage {
 public:
  void add(size_t prompt, const ChoiceEnd& choice);
  Json json() const;     // OpenAI's
  Json timings() const;  // timings_json()

 private:
  struct Prompt {
    int64_t tokens = 0, cached = 0;
  };
  std::vector<Prompt> prompts_;
  int64_t reasoning_ = 0;
  runtime::RequestEnd sum_;  // of the answers; the longest times
};

// {"content": [{"token", "logprob", "bytes", "top_logprobs"}]}.
Json chat_logprobs(const ServedModel& model, const std::vector<PieceLogprob>& list);

}  // namespace ktx::server

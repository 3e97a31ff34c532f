// One HTTP request that the model answers: one or several choices, their tokens turned
// into text, reasoning and tool calls.
//
//   class Completion : public AnswerJob { void on_piece(...) ...; void on_all_ended() ... };
//   std::make_shared<Completion>(...)->start(std::move(specs));
//
// A protocol overrides four functions, which are called one at a time (on the engine's
// thread, mostly), and writes its answer to reply(). When the client goes away all
// choices are cancelled. What they throw ends this answer with 500, and nothing else.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "lib/server/api_error.h"
#include "lib/server/http_server.h"
#include "lib/server/served_model.h"
#include "lib/text/detokenizer.h"
#include "lib/text/stop_strings.h"

namespace ktx::server {

// What one choice asks of the model.
struct AnswerSpec {
  std::vector<int32_t> prompt;
  std::string owner;  // whose text it is (owner_of)
  int64_t max_tokens = -1;
  runtime::SamplingOptions sampling;
  std::vector<std::string> stop;
  int logprobs = -1;
  bool ignore_eos = false;  // without a filter; one has its own
  bool reuse_cache = true;
  bool split_reasoning = false;
  bool reasoning_open = false;
  bool parse_tools = false;
  bool forced_call = false;   // the answer is a call as bare JSON, also one that was cut
  bool stream_calls = false;  // as call_pieces
  std::vector<text::OfferedTool> tools;
  std::unique_ptr<runtime::TokenFilter> filter;
  // To go on with an interrupted answer (runtime::GenerationRequest).
  std::optional<runtime::SamplerState> sampler;
  int64_t answered_tokens = 0;
  bool tell_answered = false;  // the pieces begin with what these have said
  double max_seconds = 0;      // 0: no limit
};

struct PieceLogprob {
  int32_t id = -1;
  runtime::Logprobs logprobs;
};

// What came, in this order. Several may be empty, not all.
struct Piece {
  std::string reasoning;
  std::string text;
  std::vector<text::ToolCall> calls;
  std::vector<text::ToolCallPiece> call_pieces;  // instead of them with stream_calls
  std::vector<PieceLogprob> logprobs;            // of the tokens since the last piece
};

struct ChoiceEnd {
  runtime::RequestEnd result;
  std::string finish_reason;     // "stop", "length" or "tool_calls"
  std::string stop_string;       // that ended it; "" for none
  int64_t reasoning_tokens = 0;  // of result.completion_tokens
  bool failed = false;           // `error` is for the client
  ApiError error;
};

class AnswerJob : public std::enable_shared_from_this<AnswerJob> {
 public:
  AnswerJob(std::shared_ptr<ServedModel> model, HttpReplyPtr reply);
  virtual ~AnswerJob();

  // Hands all choices to the scheduler, or none and calls on_refused().
  void start(std::vector<AnswerSpec> specs);

 protected:
  virtual void on_accepted() = 0;  // before the first piece
  virtual void on_piece(size_t choice, Piece piece) = 0;
  virtual void on_choice_end(size_t choice, const ChoiceEnd& end) = 0;
  virtual void on_all_ended() = 0;
  virtual void on_refused(const ApiError& error) = 0;

  const ServedModel& model() const { return *model_; }
  HttpReply& reply() { return *reply_; }
  size_t choices() const { return choices_.size(); }
  int64_t prompt_tokens() const;  // of the first choice

 private:
  struct Choice;
  bool add_token(size_t index, const runtime::TokenEvent& token);
  void flush(size_t index, std::string text, bool last);
  void end_choice(size_t index, const runtime::RequestEnd& end);
  void tell_end(size_t index, const runtime::RequestEnd& end);
  void break_off();

  std::shared_ptr<ServedModel> model_;
  HttpReplyPtr reply_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Choice>> choices_;
  size_t open_ = 0;
  bool refused_ = false;
};

// The scheduler's refusal as an error: 400, 429 with Retry-After or 503.
ApiError to_api_error(const runtime::BatchScheduler::Refused& refused);
// Why an answer could not be given; the request itself was fine.
ApiError end_error(const runtime::RequestEnd& end);

// Sends an error in OpenAI's shape.
void send_error(HttpReply& reply, const ApiError& error);
// The headers that an error needs: Retry-After, WWW-Authenticate, Allow.
HttpHeaders error_headers(const ApiError& error);
// The headers of a stream: nothing on the way may keep it, nor hold it back until it is long.
HttpHeaders stream_headers();

}  // namespace ktx::server

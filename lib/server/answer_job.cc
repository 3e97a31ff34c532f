#include "lib/server/answer_job.h"

#include <algorithm>
#include <utility>

#include "lib/server/json_fields.h"

namespace ktx::server {

using runtime::BatchScheduler;
using runtime::EndReason;

// From tokens to pieces: characters that are whole, stop strings, reasoning, calls.
struct AnswerJob::Choice {
  Choice(const ServedModel& model, const AnswerSpec& spec)
      : detokenizer(*model.tokenizer,
                    // Markers of calls and reasoning are control tokens in some vocabularies.
                    {.special = spec.parse_tools || spec.split_reasoning, .at_start = false}) {
    if (spec.split_reasoning && model.reasoning) {
      reasoning.emplace(*model.reasoning, spec.reasoning_open);
    }
    // A forced call is bare JSON, whatever the model's own form is.
    const auto format = spec.forced_call ? text::ToolCallFormat::Llama3 : model.tool_format;
    // In pieces it is a call also where it was cut.
    const bool in_pieces = spec.stream_calls || spec.forced_call;
    if (spec.parse_tools || spec.forced_call) tools.emplace(format, spec.tools, in_pieces);
    forced_call = spec.forced_call;
    gather_call = spec.forced_call && !spec.stream_calls;
  }

  // A forced call that comes whole, from its pieces.
  void gather(Piece& piece, bool last) {
    for (text::ToolCallPiece& said : piece.call_pieces) {
      if (said.begins) gathered.emplace(text::ToolCall{said.name, "", said.id});
      if (gathered) gathered->arguments += said.arguments;
    }
    piece.call_pieces.clear();
    if (last && gathered) piece.calls.push_back(std::move(*gathered));
  }

  runtime::RequestId id = 0;
  int64_t prompt_tokens = 0;
  text::Detokenizer detokenizer;
  text::StopStrings stop;
  std::optional<text::ReasoningSplitter> reasoning;
  std::optional<text::ToolCallParser> tools;
  std::vector<PieceLogprob> logprobs;
  bool forced_call = false, gather_call = false;
  std::optional<text::ToolCall> gathered;
  std::string answered;  // to be sent first
  bool called_tools = false;
  bool reasoned = false;
  int64_t reasoning_tokens = 0;
};

AnswerJob::AnswerJob(std::shared_ptr<ServedModel> model, HttpReplyPtr reply)
    : model_(std::move(model)), reply_(std::move(reply)) {}

AnswerJob::~AnswerJob() = default;

int64_t AnswerJob::prompt_tokens() const {
  return choices_.empty() ? 0 : choices_[0]->prompt_tokens;
}

void AnswerJob::start(std::vector<AnswerSpec> specs) {
  const auto self = shared_from_this();
  std::vector<runtime::GenerationRequest> requests;
  for (size_t i = 0; i < specs.size(); ++i) {
    AnswerSpec& spec = specs[i];
    auto choice = std::make_unique<Choice>(*model_, spec);
    Result<text::StopStrings> stop = text::StopStrings::create(std::move(spec.stop));
    if (!stop) return on_refused({400, stop.error().message, "stop", ""});
    choice->stop = stop.take();
    // Not told again, the half of a character that an interrupted answer ended with is
    // still to be shown.
    const auto answered = std::span<const int32_t>(spec.prompt).last(spec.answered_tokens);
    for (const int32_t id : answered) {
      const std::string said = choice->detokenizer.add(id);
      if (spec.tell_answered) choice->answered += said;
    }
    choice->prompt_tokens = static_cast<int64_t>(spec.prompt.size());
    choices_.push_back(std::move(choice));

    runtime::GenerationRequest request;
    request.prompt = std::move(spec.prompt);
    request.owner = std::move(spec.owner);
    request.max_tokens = spec.max_tokens;
    request.sampling = std::move(spec.sampling);
    request.logprobs = spec.logprobs;
    request.reuse_cache = spec.reuse_cache;
    request.filter = std::move(spec.filter);
    request.sampler = spec.sampler;
    request.answered_tokens = spec.answered_tokens;
    // Where its grammar ends an answer ends.
    if (!spec.ignore_eos || request.filter) {
      request.is_end = [model = model_](int32_t id) { return model->tokenizer->is_eog(id); };
    }
    if (spec.max_seconds > 0) {
      request.deadline = std::chrono::steady_clock::now() +
                         std::chrono::microseconds(static_cast<int64_t>(spec.max_seconds * 1e6));
    }
    request.on_token = [self, i](const runtime::TokenEvent& token) {
      return self->add_token(i, token);
    };
    request.on_end = [self, i](const runtime::RequestEnd& end) { self->end_choice(i, end); };
    requests.push_back(std::move(request));
  }

  {
    // Held so that no token is sent before all choices are accepted.
    const std::lock_guard lock(mutex_);
    open_ = requests.size();
    BatchScheduler::Refused refused;
    for (size_t i = 0; i < requests.size(); ++i) {
      choices_[i]->id = model_->scheduler->submit(std::move(requests[i]), &refused);
      if (choices_[i]->id != 0) continue;
      refused_ = true;
      for (size_t j = 0; j < i; ++j) model_->scheduler->cancel(choices_[j]->id);
      return on_refused(to_api_error(refused));
    }
    on_accepted();
    for (size_t i = 0; i < choices_.size(); ++i) {
      if (!choices_[i]->answered.empty()) flush(i, std::move(choices_[i]->answered), false);
    }
  }
  reply_->on_gone([self] {
    for (const auto& choice : self->choices_) self->model_->scheduler->cancel(choice->id);
  });
}

bool AnswerJob::add_token(size_t index, const runtime::TokenEvent& token) {
  const std::lock_guard lock(mutex_);
  if (refused_) return false;
  Choice& choice = *choices_[index];
  if (token.logprobs != nullptr) choice.logprobs.push_back({token.id, *token.logprobs});
  flush(index, choice.detokenizer.add(token.id), false);
  if (choice.reasoning && !choice.reasoning->in_answer()) ++choice.reasoning_tokens;
  return !choice.stop.stopped();
}

void AnswerJob::flush(size_t index, std::string text, bool last) {
  Choice& choice = *choices_[index];
  const bool stopped_before = choice.stop.stopped();
  text = stopped_before ? std::string() : choice.stop.add(text);
  if (last) text += choice.stop.finish();
  Piece piece;
  if (choice.reasoning) {
    text::ReasoningDelta delta = choice.reasoning->add(text);
    if (last) {
      text::ReasoningDelta rest = choice.reasoning->finish();
      delta.reasoning += rest.reasoning;
      delta.answer += rest.answer;
    }
    piece.reasoning = std::move(delta.reasoning);
    choice.reasoned = choice.reasoned || !piece.reasoning.empty();
    text = std::move(delta.answer);
  }
  if (choice.tools) {
    text::ToolCallDelta delta = choice.tools->add(text);
    if (last) {
      text::ToolCallDelta rest = choice.tools->finish();
      delta.text += rest.text;
      std::move(rest.calls.begin(), rest.calls.end(), std::back_inserter(delta.calls));
      std::move(rest.pieces.begin(), rest.pieces.end(), std::back_inserter(delta.pieces));
    }
    text = std::move(delta.text);
    piece.calls = std::move(delta.calls);
    piece.call_pieces = std::move(delta.pieces);
    choice.called_tools = choice.called_tools || !piece.calls.empty() || !piece.call_pieces.empty();
    // Cut before its name was there, a forced call is no text either.
    if (choice.forced_call) text.clear();
    if (choice.gather_call) choice.gather(piece, last);
  }
  piece.text += text;
  const bool something = !piece.text.empty() || !piece.reasoning.empty() || !piece.calls.empty() ||
                         !piece.call_pieces.empty();
  if (!something && !(last && !choice.logprobs.empty())) return;
  piece.logprobs = std::exchange(choice.logprobs, {});
  on_piece(index, std::move(piece));
}

void AnswerJob::end_choice(size_t index, const runtime::RequestEnd& end) {
  const std::lock_guard lock(mutex_);
  if (refused_) return;
  try {
    tell_end(index, end);
  } catch (...) {
    break_off();
  }
}

// An answer that cannot be put together ends as an error, or without its end where it has begun.
void AnswerJob::break_off() {
  refused_ = true;
  for (const auto& choice : choices_) model_->scheduler->cancel(choice->id);
  try {
    if (!reply_->begun()) {
      return on_refused({500, "an error inside the server; the request was not answered", "", ""});
    }
  } catch (...) {
  }
  reply_->break_off();
}

void AnswerJob::tell_end(size_t index, const runtime::RequestEnd& end) {
  Choice& choice = *choices_[index];
  ChoiceEnd result;
  result.result = end;
  switch (end.reason) {
    case EndReason::Failed:
    case EndReason::Cancelled:
    case EndReason::ShutDown:
      result.failed = true;
      result.error = end_error(end);
      break;
    case EndReason::Deadline:
      result.failed = end.completion_tokens == 0;
      result.error = end_error(end);
      result.finish_reason = "length";
      break;
    case EndReason::Length:
    case EndReason::ContextFull:
      result.finish_reason = "length";
      break;
    case EndReason::Stop:
      result.finish_reason = "stop";
  }
  if (!result.failed) {
    flush(index, choice.detokenizer.finish(), true);
    if (choice.called_tools && result.finish_reason == "stop") result.finish_reason = "tool_calls";
    if (choice.reasoned) result.reasoning_tokens = choice.reasoning_tokens;
    if (choice.stop.stopped()) result.stop_string = choice.stop.stopped_by();
  }
  on_choice_end(index, result);
  if (--open_ == 0) on_all_ended();
}

ApiError to_api_error(const BatchScheduler::Refused& refused) {
  ApiError error;
  error.message = refused.message;
  switch (refused.why) {
    case BatchScheduler::Refusal::Invalid:
      break;
    case BatchScheduler::Refusal::TooLong:
      error.code = "context_length_exceeded";
      break;
    case BatchScheduler::Refusal::QueueFull:
      error.status = 429;
      error.code = "queue_full";
      error.retry_after_seconds = 2;
      break;
    case BatchScheduler::Refusal::Draining:
      error.status = 503;
      error.retry_after_seconds = 5;
      break;
  }
  return error;
}

ApiError end_error(const runtime::RequestEnd& end) {
  switch (end.reason) {
    case EndReason::Deadline:
      return {503, "the time limit of the server was reached before the first token", "", "timeout",
              5};
    case EndReason::Cancelled:
      return {503, "the request was cancelled", "", "cancelled"};
    case EndReason::ShutDown:
      return {503, "the server is shutting down", "", "shutdown", 5};
    default:
      return {500, end.error, "", ""};
  }
}

HttpHeaders error_headers(const ApiError& error) {
  HttpHeaders headers;
  if (error.status == 429 || error.status == 503) {
    headers.emplace_back("Retry-After", std::to_string(std::max(1, error.retry_after_seconds)));
  }
  if (error.status == 401) headers.emplace_back("WWW-Authenticate", "Bearer");
  if (!error.allow.empty()) headers.emplace_back("Allow", error.allow);
  return headers;
}

HttpHeaders stream_headers() {
  // nginx collects answers in parts of 4 or 8 KiB, some 30 tokens, unless a header forbids it.
  return {{"Cache-Control", "no-cache"}, {"X-Accel-Buffering", "no"}};
}

void send_error(HttpReply& reply, const ApiError& error) {
  reply.send(error.status, "application/json", dump(to_json(error)), error_headers(error));
}

}  // namespace ktx::server

#include "lib/server/answer/answer_job.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "lib/server/answer/answer_reader.h"
#include "lib/server/http/json_fields.h"
#include "lib/server/request/scheduler_refusal.h"

namespace ktx::server {

using runtime::BatchScheduler;
using runtime::EndReason;

struct AnswerJob::Choice {
  Choice(const ServedModel& model, const AnswerSpec& spec, text::StopStrings stop)
      : reader(model, spec, std::move(stop)) {}

  runtime::RequestId id = 0;
  int64_t prompt_tokens = 0;
  AnswerReader reader;
  std::vector<int32_t> tokens;
  std::vector<PieceLogprob> logprobs, of_prompt;
  bool tell_times = false;
  Piece answered;  // to be sent first
  int64_t reasoning_tokens = 0;
};

namespace {

// The filter of `spec`, with a budget of its reasoning where there is one.
std::unique_ptr<runtime::TokenFilter> limit_reasoning(const ServedModel& model, AnswerSpec& spec) {
  if (spec.reasoning_limit.tokens < 0 || !spec.split_reasoning) return std::move(spec.filter);
  const auto answered = static_cast<size_t>(spec.answered_tokens);
  const auto prompt = std::span<const int32_t>(spec.prompt).first(spec.prompt.size() - answered);
  auto watch =
      ReasoningWatch::create(*model.tokenizer, model.reasoning_form(), prompt, spec.reasoning_open);
  if (!watch) return std::move(spec.filter);
  auto budget = std::make_unique<ReasoningBudget>(*model.tokenizer, std::move(*watch),
                                                  spec.reasoning_limit, std::move(spec.filter));
  for (const int32_t id : std::span(spec.prompt).last(answered)) (void)budget->accept(id);
  return budget;
}

}  // namespace

AnswerJob::AnswerJob(std::shared_ptr<ServedModel> model, HttpReplyPtr reply)
    : model_(std::move(model)), reply_(std::move(reply)) {}

AnswerJob::~AnswerJob() = default;

int64_t AnswerJob::prompt_tokens() const {
  return choices_.empty() ? 0 : choices_[0]->prompt_tokens;
}

void AnswerJob::start(std::vector<AnswerSpec> specs) {
  if (const int64_t most = model_->scheduler->most_open();
      static_cast<int64_t>(specs.size()) > most) {
    return on_refused(
        {400,
         fmt::format("{} answers at once, but the batch and the queue of this server hold {}",
                     specs.size(), most),
         "n", ""});
  }
  const auto self = shared_from_this();
  std::vector<runtime::GenerationRequest> requests;
  for (size_t i = 0; i < specs.size(); ++i) {
    AnswerSpec& spec = specs[i];
    Result<text::StopStrings> stop = text::StopStrings::create(std::move(spec.stop));
    if (!stop) return on_refused({400, stop.error().message, "stop", ""});
    auto choice = std::make_unique<Choice>(*model_, spec, stop.take());
    // Not sent again, the half of a character that an interrupted answer ended with is
    // still to be shown.
    const auto answered = std::span<const int32_t>(spec.prompt).last(spec.answered_tokens);
    if (spec.tell_answered) {
      choice->answered = choice->reader.add(answered);
    } else {
      for (const int32_t id : answered) choice->reader.pass(id);
    }
    choice->prompt_tokens = static_cast<int64_t>(spec.prompt.size());
    choice->tell_times = spec.tell_times;
    if (spec.prompt_logprobs) {
      choice->of_prompt.reserve(spec.prompt.size());
      choice->of_prompt.push_back({spec.prompt.empty() ? -1 : spec.prompt[0], {std::nan(""), {}}});
    }
    for (const std::string& note : spec.notes) reply_->add_note(note);
    choices_.push_back(std::move(choice));

    runtime::GenerationRequest request;
    static_cast<runtime::GenerationOptions&>(request) = spec;
    // Where its grammar ends an answer ends.
    if (!spec.ignore_eos || spec.filter) {
      request.is_end = [model = model_](int32_t id) { return model->tokenizer->is_eog(id); };
    }
    request.filter = limit_reasoning(*model_, spec);
    request.prompt = std::move(spec.prompt);
    request.images = std::move(spec.images);
    request.owner = std::move(spec.owner);
    request.share = std::move(spec.share);
    if (spec.prompt_logprobs) {
      request.prompt_logprobs = std::max(spec.logprobs, 0);
      request.tell_end = true;  // harnesses count: one more token than the prompt has
      request.on_prompt_logprobs = [self, i, ids = request.prompt](
                                       int64_t position, const runtime::Logprobs& logprobs) {
        const std::lock_guard lock(self->mutex_);
        self->choices_[i]->of_prompt.push_back({ids[static_cast<size_t>(position)], logprobs});
      };
    }
    request.sampler = spec.sampler;
    request.answered_tokens = spec.answered_tokens;
    if (spec.max_seconds > 0) {
      request.deadline = std::chrono::steady_clock::now() +
                         std::chrono::microseconds(static_cast<int64_t>(spec.max_seconds * 1e6));
    }
    if (spec.tell_progress) {
      request.on_progress = [self, i](const runtime::PromptProgress& progress) {
        self->tell_progress(i, progress);
      };
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
      send(i, std::move(choices_[i]->answered), false);
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
  tell_prompt(choice, index);
  choice.tokens.push_back(token.id);
  if (token.logprobs != nullptr) choice.logprobs.push_back({token.id, *token.logprobs});
  Piece piece = choice.reader.add({&token.id, 1});
  if (choice.tell_times) piece.so_far = *token.so_far;
  send(index, std::move(piece), false);
  if (choice.reader.in_reasoning()) ++choice.reasoning_tokens;
  return !choice.reader.stopped();
}

void AnswerJob::tell_progress(size_t index, const runtime::PromptProgress& progress) {
  const std::lock_guard lock(mutex_);
  if (!refused_) on_progress(index, progress);
}

void AnswerJob::tell_prompt(Choice& choice, size_t index) {
  if (!choice.of_prompt.empty()) on_prompt(index, std::exchange(choice.of_prompt, {}));
}

void AnswerJob::send(size_t index, Piece piece, bool last) {
  Choice& choice = *choices_[index];
  const bool something = !piece.text.empty() || !piece.reasoning.empty() || !piece.calls.empty() ||
                         !piece.call_pieces.empty();
  if (!something && !(last && !choice.logprobs.empty())) return;
  piece.tokens = std::exchange(choice.tokens, {});
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
    const AnswerReader& reader = choice.reader;
    tell_prompt(choice, index);
    send(index, choice.reader.finish(result.finish_reason == "length"), true);
    if (reader.called_tools() && result.finish_reason == "stop")
      result.finish_reason = "tool_calls";
    if (reader.reasoned()) result.reasoning_tokens = choice.reasoning_tokens;
    if (reader.stopped()) result.stop_string = reader.stopped_by();
  }
  reply_->add_tokens(end.prompt_tokens, end.cached_tokens, end.completion_tokens);
  on_choice_end(index, result);
  if (--open_ == 0) on_all_ended();
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

// POST /v1/chat/completions.
#include <fmt/format.h>

#include <ctime>

#include "lib/server/answer_fields.h"
#include "lib/server/chat_prompt_input.h"
#include "lib/server/endpoints.h"
#include "lib/server/openai_format.h"
#include "lib/server/tool_choice.h"

namespace ktx::server {
namespace {

Json tool_call_json(const text::ToolCall& call) {
  Json json;
  json["id"] = call.id.empty() ? new_id("call_") : call.id;
  json["type"] = "function";
  json["function"] = {{"name", call.name}, {"arguments", call.arguments}};
  return json;
}

class ChatCompletion final : public AnswerJob {
 public:
  ChatCompletion(std::shared_ptr<ServedModel> model, HttpReplyPtr reply, const AnswerFields& fields,
                 bool logprobs)
      : AnswerJob(std::move(model), std::move(reply)),
        stream_(fields.stream),
        include_usage_(fields.include_usage),
        logprobs_(logprobs),
        id_(new_id("chatcmpl-")),
        created_(std::time(nullptr)),
        parts_(static_cast<size_t>(fields.n)) {}

 private:
  struct Part {
    std::string text, reasoning, finish_reason;
    Json calls = Json::array();
    std::vector<PieceLogprob> logprobs;
  };

  Json envelope(const char* object) const {
    Json json;
    json["id"] = id_;
    json["object"] = object;
    json["created"] = created_;
    json["model"] = model().id;
    json["system_fingerprint"] = "ktx-" KTX_VERSION;
    return json;
  }

  void chunk(size_t choice, Json delta, const char* finish, const Json& logprobs) {
    Json json = envelope("chat.completion.chunk");
    Json entry;
    entry["index"] = choice;
    entry["delta"] = std::move(delta);
    entry["logprobs"] = logprobs;
    entry["finish_reason"] = finish == nullptr ? Json() : Json(finish);
    json["choices"] = Json::array({std::move(entry)});
    if (include_usage_) json["usage"] = nullptr;
    reply().write(sse(json));
  }

  void on_accepted() override {
    if (!stream_) return;
    reply().begin(200, "text/event-stream", {{"Cache-Control", "no-cache"}});
    for (size_t i = 0; i < parts_.size(); ++i) {
      chunk(i, {{"role", "assistant"}, {"content", nullptr}}, nullptr, nullptr);
    }
  }

  void on_piece(size_t choice, Piece piece) override {
    Part& part = parts_[choice];
    const size_t calls_before = part.calls.size();
    for (const text::ToolCall& call : piece.calls) part.calls.push_back(tool_call_json(call));
    if (!stream_) {
      part.text += piece.text;
      part.reasoning += piece.reasoning;
      std::move(piece.logprobs.begin(), piece.logprobs.end(), std::back_inserter(part.logprobs));
      return;
    }
    Json logprobs;
    if (logprobs_) logprobs = chat_logprobs(model(), piece.logprobs);
    if (!piece.reasoning.empty()) {
      chunk(choice, {{"reasoning_content", piece.reasoning}}, nullptr,
            piece.text.empty() ? logprobs : Json());
    }
    if (!piece.text.empty()) chunk(choice, {{"content", piece.text}}, nullptr, logprobs);
    for (size_t i = calls_before; i < part.calls.size(); ++i) {
      // The name first, then the arguments: what clients put together piece by piece.
      Json call = part.calls[i];
      call["index"] = i;
      const Json arguments = std::exchange(call["function"]["arguments"], "");
      chunk(choice, {{"tool_calls", Json::array({call})}}, nullptr, nullptr);
      const Json rest = {{"index", i}, {"function", {{"arguments", arguments}}}};
      chunk(choice, {{"tool_calls", Json::array({rest})}}, nullptr, nullptr);
    }
    if (piece.text.empty() && piece.reasoning.empty() && piece.calls.empty()) {
      chunk(choice, {{"content", ""}}, nullptr, logprobs);
    }
  }

  void on_choice_end(size_t choice, const ChoiceEnd& end) override {
    usage_.add(end);
    if (end.failed) {
      failed_ = end.error;
      return;
    }
    parts_[choice].finish_reason = end.finish_reason;
    if (stream_) chunk(choice, Json::object(), end.finish_reason.c_str(), nullptr);
  }

  void on_all_ended() override {
    if (stream_) {
      if (failed_) {
        reply().write(sse(to_json(*failed_)));
      } else if (include_usage_) {
        Json json = envelope("chat.completion.chunk");
        json["choices"] = Json::array();
        json["usage"] = usage_.json();
        json["timings"] = usage_.timings();
        reply().write(sse(json));
      }
      reply().write("data: [DONE]\n\n");
      return reply().end();
    }
    if (failed_) return send_error(reply(), *failed_);
    Json json = envelope("chat.completion");
    json["choices"] = Json::array();
    for (size_t i = 0; i < parts_.size(); ++i) {
      Part& part = parts_[i];
      Json message;
      message["role"] = "assistant";
      message["content"] = part.text.empty() && !part.calls.empty() ? Json() : Json(part.text);
      message["refusal"] = nullptr;
      if (!part.reasoning.empty()) message["reasoning_content"] = part.reasoning;
      if (!part.calls.empty()) message["tool_calls"] = std::move(part.calls);
      Json entry;
      entry["index"] = i;
      entry["message"] = std::move(message);
      entry["logprobs"] = logprobs_ ? chat_logprobs(model(), part.logprobs) : Json();
      entry["finish_reason"] = part.finish_reason;
      json["choices"].push_back(std::move(entry));
    }
    json["usage"] = usage_.json();
    json["timings"] = usage_.timings();
    reply().send(200, "application/json", dump(json));
  }

  void on_refused(const ApiError& error) override { send_error(reply(), error); }

  const bool stream_, include_usage_, logprobs_;
  const std::string id_;
  const int64_t created_;
  std::vector<Part> parts_;
  Usage usage_;
  std::optional<ApiError> failed_;
};

}  // namespace

void post_chat_completions(const ServerContext& context, const HttpRequest& request,
                           const HttpReplyPtr& reply) {
  const ServedModel& model = *context.model;
  Json body;
  if (const auto error = parse_body(request.body, body)) return send_error(*reply, *error);
  FieldReader in(body);
  AnswerFields fields = read_answer_fields(model, in);
  const std::string name = in.text("model");
  const bool logprobs = in.flag("logprobs", false);
  const int64_t top = in.whole("top_logprobs", 0, 0, 20);
  if (logprobs) fields.logprobs = static_cast<int>(top);
  const Json* messages = in.list("messages");
  if (messages == nullptr) in.fail("messages", "'messages' is missing");
  ChatInput input;
  if (const Json* extra = in.object("chat_template_kwargs")) input.extra = *extra;
  if (in.text("reasoning_effort") == "none") input.extra["enable_thinking"] = false;
  const Json* tools = in.list("tools");
  const Json* choice = in.get("tool_choice");
  if (in.error()) return send_error(*reply, *in.error());
  if (const auto error = check_model(model, name)) return send_error(*reply, *error);
  if (const auto error = read_messages(*messages, input.messages))
    return send_error(*reply, *error);
  if (tools != nullptr) {
    if (const auto error = read_tools(*tools, input.tools)) return send_error(*reply, *error);
  }
  if (const auto error = apply_tool_choice(model, choice, input.tools, fields.constraint)) {
    return send_error(*reply, *error);
  }
  prepare_constrained(fields.constraint, input);
  ChatPrompt prompt;
  if (const auto error = make_prompt(model, input, prompt)) return send_error(*reply, *error);
  std::vector<AnswerSpec> specs;
  if (const auto error = make_specs(model, fields, prompt.ids, context.request_seconds, specs)) {
    return send_error(*reply, *error);
  }
  for (AnswerSpec& spec : specs) use_chat_parsers(model, input, prompt, fields.constraint, spec);
  std::make_shared<ChatCompletion>(context.model, reply, fields, logprobs)->start(std::move(specs));
}

}  // namespace ktx::server

// POST /v1/messages: Anthropic's protocol in its basic form (text, thinking, tools).
#include <fmt/format.h>

#include "lib/server/answer_fields.h"
#include "lib/server/chat_prompt_input.h"
#include "lib/server/constraint_fields.h"
#include "lib/server/endpoints.h"
#include "lib/server/openai_format.h"
#include "lib/server/tool_choice.h"

namespace ktx::server {
namespace {

void send_anthropic_error(HttpReply& reply, const ApiError& error) {
  const Json json = {{"type", "error"},
                     {"error", {{"type", error_type(error.status)}, {"message", error.message}}}};
  reply.send(error.status, "application/json", dump(json), error_headers(error));
}

class MessageAnswer final : public AnswerJob {
 public:
  MessageAnswer(std::shared_ptr<ServedModel> model, HttpReplyPtr reply, bool stream)
      : AnswerJob(std::move(model), std::move(reply)), stream_(stream), id_(new_id("msg_")) {}

 private:
  Json message() const {
    return {{"id", id_},
            {"type", "message"},
            {"role", "assistant"},
            {"model", model().id},
            {"content", content_},
            {"stop_reason", nullptr},
            {"stop_sequence", nullptr},
            // What of it is cached is known at the end.
            {"usage", {{"input_tokens", prompt_tokens()}, {"output_tokens", 0}}}};
  }

  void event(const char* type, Json json) {
    Json whole = {{"type", type}};
    whole.update(json);
    reply().write(sse(type, whole));
  }

  // Goes on in a block of this type, or begins one. Blocks are thinking, text, tool_use.
  void open_block(const std::string& type, Json block) {
    if (open_ == type && type != "tool_use") return;
    close_block();
    open_ = type;
    if (stream_) {
      event("content_block_start", {{"index", content_.size()}, {"content_block", block}});
    }
    content_.push_back(std::move(block));
  }
  void close_block() {
    if (open_ == "thinking") delta("signature_delta", "signature", "");  // as clients expect
    if (!open_.empty() && stream_) {
      event("content_block_stop", {{"index", content_.size() - 1}});
    }
    open_.clear();
  }
  void delta(const char* type, const char* key, const std::string& text) {
    if (!stream_) return;
    event("content_block_delta",
          {{"index", content_.size() - 1}, {"delta", {{"type", type}, {key, text}}}});
  }
  void append(const char* key, const std::string& text) {
    Json& value = content_.back()[key];
    value = value.get<std::string>() + text;
  }

  void on_accepted() override {
    if (!stream_) return;
    reply().begin(200, kEventStream, stream_headers());
    event("message_start", {{"message", message()}});
  }

  void on_piece(size_t, Piece piece) override {
    if (!piece.reasoning.empty()) {
      open_block("thinking", {{"type", "thinking"}, {"thinking", ""}, {"signature", ""}});
      append("thinking", piece.reasoning);
      delta("thinking_delta", "thinking", piece.reasoning);
    }
    if (!piece.text.empty()) {
      open_block("text", {{"type", "text"}, {"text", ""}});
      append("text", piece.text);
      delta("text_delta", "text", piece.text);
    }
    for (const text::ToolCall& call : piece.calls) {
      begin_call(call.name, call.id);
      Json input = Json::parse(call.arguments, nullptr, false);
      if (!input.is_discarded()) content_.back()["input"] = std::move(input);
    }
    for (const text::ToolCallPiece& said : piece.call_pieces) {
      if (said.begins) begin_call(said.name, said.id);
      if (!said.arguments.empty()) delta("input_json_delta", "partial_json", said.arguments);
    }
  }

  void begin_call(const std::string& name, const std::string& id) {
    open_block("tool_use", {{"type", "tool_use"},
                            {"id", id.empty() ? new_id("toolu_") : id},
                            {"name", name},
                            {"input", Json::object()}});
  }

  void on_choice_end(size_t, const ChoiceEnd& end) override { end_ = end; }

  void on_all_ended() override {
    if (end_.failed) {
      if (!stream_) return send_anthropic_error(reply(), end_.error);
      event(
          "error",
          {{"error", {{"type", error_type(end_.error.status)}, {"message", end_.error.message}}}});
      return reply().end();
    }
    const char* reason = end_.finish_reason == "length"       ? "max_tokens"
                         : end_.finish_reason == "tool_calls" ? "tool_use"
                         : !end_.stop_string.empty()          ? "stop_sequence"
                                                              : "end_turn";
    Json sequence;
    if (!end_.stop_string.empty()) sequence = end_.stop_string;
    const runtime::RequestEnd& result = end_.result;
    const Json usage = {{"input_tokens", result.prompt_tokens - result.cached_tokens},
                        {"cache_read_input_tokens", result.cached_tokens},
                        {"cache_creation_input_tokens", 0},
                        {"output_tokens", result.completion_tokens}};
    close_block();
    if (stream_) {
      event("message_delta",
            {{"delta", {{"stop_reason", reason}, {"stop_sequence", sequence}}}, {"usage", usage}});
      event("message_stop", Json::object());
      return reply().end();
    }
    Json json = message();
    json["stop_reason"] = reason;
    json["stop_sequence"] = sequence;
    json["usage"] = usage;
    json["id_slot"] = result.slot;
    reply().send(200, "application/json", dump(json));
  }

  void on_refused(const ApiError& error) override { send_anthropic_error(reply(), error); }

  const bool stream_;
  const std::string id_;
  std::string open_;
  Json content_ = Json::array();
  ChoiceEnd end_;
};

// One of Anthropic's messages becomes one or several of OpenAI's: results of tools are
// messages of their own there.
std::optional<ApiError> convert_message(const Json& from, Json& to) {
  const ApiError wrong{400, "a message needs a role and a content", "messages", ""};
  if (!from.is_object() || !from.contains("role") || !from.contains("content")) return wrong;
  const Json& content = from["content"];
  if (!content.is_array()) {
    to.push_back(from);
    return std::nullopt;
  }
  Json parts = Json::array(), calls = Json::array();
  std::string thinking;
  for (const Json& block : content) {
    if (!block.is_object() || !block.contains("type") || !block["type"].is_string()) return wrong;
    const std::string type = block["type"];
    if (type == "tool_use") {
      calls.push_back(
          {{"id", string_or(block, "id", "")},
           {"type", "function"},
           {"function",
            {{"name", block.contains("name") ? block["name"] : Json("")},
             {"arguments", block.contains("input") ? block["input"] : Json::object()}}}});
    } else if (type == "tool_result") {
      std::string text;
      if (block.contains("content")) {
        if (auto error = flatten_content(block["content"], "messages.content", text)) return error;
      }
      Json result = {{"role", "tool"}, {"content", text}};
      if (block.contains("tool_use_id")) result["tool_call_id"] = block["tool_use_id"];
      to.push_back(std::move(result));
    } else if (type == "thinking") {
      if (block.contains("thinking") && block["thinking"].is_string()) {
        thinking += block["thinking"].get<std::string>();
      }
    } else {
      parts.push_back(block);
    }
  }
  if (parts.empty() && calls.empty()) return std::nullopt;
  Json message = {{"role", from["role"]}, {"content", parts}};
  if (!calls.empty()) message["tool_calls"] = calls;
  if (!thinking.empty()) message["reasoning_content"] = thinking;
  to.push_back(std::move(message));
  return std::nullopt;
}

// The request: messages, system, tools, thinking.
std::optional<ApiError> read_conversation(const ServedModel& model, FieldReader& in,
                                          ChatInput& input, AnswerFields& fields) {
  const Json* messages = in.list("messages");
  if (messages == nullptr) in.fail("messages", "'messages' is missing");
  const Json* tools = in.list("tools");
  const Json* choice = in.get("tool_choice");
  if (const Json* thinking = in.object("thinking")) {
    input.extra["enable_thinking"] = string_or(*thinking, "type", "") == "enabled";
    FieldReader inner(*thinking, "thinking.");
    if (const auto most = inner.maybe_whole("budget_tokens", 0, int64_t{1} << 40)) {
      fields.reasoning.tokens = *most;
    }
    if (inner.error()) in.fail("thinking", inner.error()->message);
  }
  if (in.error()) return in.error();
  Json converted = Json::array();
  if (const Json* system = in.get("system")) {
    converted.push_back({{"role", "system"}, {"content", *system}});
  }
  for (const Json& message : *messages) {
    if (auto error = convert_message(message, converted)) return error;
  }
  if (auto error = read_messages(converted, input.messages)) return error;
  if (tools != nullptr) {
    if (auto error = read_tools(*tools, ToolForm::Anthropic, input.tools)) return error;
  }
  return apply_tool_choice(model, choice, ToolForm::Anthropic, input.tools, fields.constraint);
}

// `output_config.format`, and `output_format`, as it was called before.
void read_output_format(FieldReader& in, Constraint& constraint) {
  if (const Json* format = in.get("output_format")) {
    read_format(*format, "output_format", in, constraint);
  }
  const Json* config = in.object("output_config");
  if (config == nullptr) return;
  const auto format = config->find("format");
  if (format != config->end() && !format->is_null()) {
    read_format(*format, "output_config.format", in, constraint);
  }
}

}  // namespace

void post_messages(const ServerContext& context, const HttpRequest& request,
                   const HttpReplyPtr& reply) {
  const ServedModel& model = *context.model;
  const auto fail = [&](const ApiError& error) { send_anthropic_error(*reply, error); };
  Json body;
  if (const auto error = parse_body(request.body, body)) return fail(*error);
  FieldReader in(body);
  AnswerFields fields = read_answer_fields(model, in);
  if (fields.n != 1) in.fail("n", "'n' is not a field here");
  read_output_format(in, fields.constraint);
  fields.stop = in.texts("stop_sequences", text::kMaxStopStrings);
  if (in.get("max_tokens") == nullptr) in.fail("max_tokens", "'max_tokens' is missing");
  ChatInput input;
  if (const auto error = read_conversation(model, in, input, fields)) {
    return fail(*error);
  }
  std::vector<AnswerSpec> specs;
  if (const auto error = make_chat_specs(context, fields, std::move(input), specs)) {
    return fail(*error);
  }
  for (AnswerSpec& spec : specs) spec.stream_calls = fields.stream;
  std::make_shared<MessageAnswer>(context.model, reply, fields.stream)->start(std::move(specs));
}

void post_count_tokens(const ServerContext& context, const HttpRequest& request,
                       const HttpReplyPtr& reply) {
  const auto fail = [&](const ApiError& error) { send_anthropic_error(*reply, error); };
  Json body;
  if (const auto error = parse_body(request.body, body)) return fail(*error);
  FieldReader in(body);
  ChatInput input;
  AnswerFields fields;
  if (const auto error = read_conversation(*context.model, in, input, fields)) {
    return fail(*error);
  }
  ChatPrompt prompt;
  if (const auto error = make_prompt(*context.model, input, prompt)) return fail(*error);
  reply->send(200, "application/json", dump(Json{{"input_tokens", prompt.ids.size()}}));
}

}  // namespace ktx::server

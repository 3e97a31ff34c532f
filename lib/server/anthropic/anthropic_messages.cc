// POST /v1/messages: Anthropic's protocol (text, thinking, tools that the client runs).
#include "lib/server/answer/answer_fields.h"
#include "lib/server/answer/chat_specs.h"
#include "lib/server/answer/tool_choice.h"
#include "lib/server/anthropic/anthropic_error.h"
#include "lib/server/anthropic/anthropic_input.h"
#include "lib/server/endpoints.h"
#include "lib/server/openai/openai_format.h"
#include "lib/server/request/constraint_fields.h"
#include "lib/server/request/content_parts.h"
#include "lib/server/request/reasoning_fields.h"
#include "lib/text/exact_json.h"

namespace ktx::server {
namespace {

struct MessageRequest {
  AnswerFields fields;
  bool show_reasoning = true;
  std::vector<AnswerSpec> specs;
};

class MessageAnswer final : public AnswerJob {
 public:
  MessageAnswer(std::shared_ptr<ServedModel> model, HttpReplyPtr reply,
                const MessageRequest& request, std::string request_id)
      : AnswerJob(std::move(model), std::move(reply)),
        stream_(request.fields.stream),
        show_reasoning_(request.show_reasoning),
        id_(new_id("msg_")),
        request_id_(std::move(request_id)) {}

 private:
  Json message() const {
    return {{"id", id_},
            {"type", "message"},
            {"role", "assistant"},
            {"model", model().id},
            {"content", content_},
            {"stop_reason", nullptr},
            {"stop_sequence", nullptr},
            // How much of the prompt is cached is known only at the end.
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
    if (open_ == "thinking") {
      const std::string signature = show_reasoning_ ? "" : sign_reasoning(hidden_);
      content_.back()["signature"] = signature;
      delta("signature_delta", "signature", signature);  // as clients expect
      hidden_.clear();
    }
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
      if (show_reasoning_) {
        append("thinking", piece.reasoning);
        delta("thinking_delta", "thinking", piece.reasoning);
      } else {
        hidden_ += piece.reasoning;
      }
    }
    if (!piece.text.empty()) {
      open_block("text", {{"type", "text"}, {"text", ""}});
      append("text", piece.text);
      delta("text_delta", "text", piece.text);
    }
    for (const text::ToolCall& call : piece.calls) {
      begin_call(call.name, call.id);
      Json input = text::parse_json(call.arguments);
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
      if (!stream_) return send_anthropic_error(reply(), end_.error, request_id_);
      reply().write(sse("error", Json::parse(anthropic_error(end_.error, request_id_))));
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

  void on_refused(const ApiError& error) override {
    send_anthropic_error(reply(), error, request_id_);
  }

  const bool stream_, show_reasoning_;
  const std::string id_, request_id_;
  std::string open_;
  std::string hidden_;  // reasoning of the open block that is not shown
  Json content_ = Json::array();
  ChoiceEnd end_;
};

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

// `counts`: only the prompt is wanted, so that `max_tokens` may be missing.
ApiResult<MessageRequest> read_request(const ServerContext& context, const HttpRequest& http,
                                       bool counts) {
  const Json body = KTX_TRY(parse_body(http.body));
  MessageRequest request;
  const ServedModel& model = *context.model;
  FieldReader in(body);
  AnswerFields& fields = request.fields = read_answer_fields(model, in);
  if (fields.n != 1) in.fail("n", "'n' is not a field here");
  read_output_format(in, fields.constraint);
  fields.stop = in.texts("stop_sequences", text::kMaxStopStrings);
  if (!counts && in.get("max_tokens") == nullptr) in.fail("max_tokens", "'max_tokens' is missing");
  const Json* messages = in.list("messages");
  if (messages == nullptr) in.fail("messages", "'messages' is missing");
  const Json* tools = in.list("tools");
  const Json* choice = in.get("tool_choice");
  ChatInput input = input_for(model);
  read_reasoning_fields(model, in, input, fields.reasoning);
  KTX_TRY(in.status());
  RequestTools offered = KTX_TRY(offered_tools(tools, ToolForm::Anthropic));
  KTX_TRY(read_anthropic_messages(in.get("system"), *messages, input, offered));
  KTX_TRY(use_tools(model, choice, ToolForm::Anthropic, offered, input, fields.constraint));
  request.show_reasoning = input.show_reasoning;
  request.specs = KTX_TRY(make_chat_specs(context, fields, std::move(input)));
  for (AnswerSpec& spec : request.specs) spec.stream_calls = fields.stream;
  return request;
}

}  // namespace

ApiStatus post_messages(const ServerContext& context, const HttpRequest& request,
                        const HttpReplyPtr& reply) {
  MessageRequest read = KTX_TRY(read_request(context, request, false));
  std::make_shared<MessageAnswer>(context.model, reply, read, request.id)
      ->start(std::move(read.specs));
  return {};
}

ApiStatus post_count_tokens(const ServerContext& context, const HttpRequest& request,
                            const HttpReplyPtr& reply) {
  context.asker->counts_only = true;
  const MessageRequest read = KTX_TRY(read_request(context, request, true));
  send_notes(read.specs[0].notes, *reply);
  send_json(reply, {{"input_tokens", read.specs[0].prompt.size()}});
  return {};
}

}  // namespace ktx::server

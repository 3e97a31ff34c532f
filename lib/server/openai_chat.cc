// POST /v1/chat/completions.
#include "lib/server/chat_prompt_input.h"
#include "lib/server/endpoints.h"
#include "lib/server/openai_answer.h"
#include "lib/server/resumed_slot.h"
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

class ChatCompletion final : public OpenAiAnswer {
 public:
  ChatCompletion(std::shared_ptr<ServedModel> model, HttpReplyPtr reply, const AnswerFields& fields,
                 bool logprobs)
      : OpenAiAnswer(std::move(model), std::move(reply), fields, "chatcmpl-",
                     {"chat.completion", "chat.completion.chunk"}, static_cast<size_t>(fields.n)),
        logprobs_(logprobs),
        parts_(static_cast<size_t>(fields.n)) {}

 private:
  struct Part {
    std::string text, reasoning;
    Json calls = Json::array();
    size_t begun_calls = 0;  // when they are streamed
    std::vector<PieceLogprob> logprobs;
  };

  void delta_chunk(size_t choice, Json delta, const char* finish, const Json& logprobs) {
    Json entry;
    entry["index"] = choice;
    entry["delta"] = std::move(delta);
    entry["logprobs"] = logprobs;
    entry["finish_reason"] = finish == nullptr ? Json() : Json(finish);
    chunk(std::move(entry));
  }

  void begin_stream() override {
    for (size_t i = 0; i < parts_.size(); ++i) {
      delta_chunk(i, {{"role", "assistant"}, {"content", nullptr}}, nullptr, nullptr);
    }
  }

  void on_piece(size_t choice, Piece piece) override {
    Part& part = parts_[choice];
    for (const text::ToolCall& call : piece.calls) part.calls.push_back(tool_call_json(call));
    if (!stream()) {
      part.text += piece.text;
      part.reasoning += piece.reasoning;
      std::move(piece.logprobs.begin(), piece.logprobs.end(), std::back_inserter(part.logprobs));
      return;
    }
    Json logprobs;
    if (logprobs_) logprobs = chat_logprobs(model(), piece.logprobs);
    if (!piece.reasoning.empty()) {
      delta_chunk(choice, {{"reasoning_content", piece.reasoning}}, nullptr,
                  piece.text.empty() ? logprobs : Json());
    }
    if (!piece.text.empty()) delta_chunk(choice, {{"content", piece.text}}, nullptr, logprobs);
    for (const text::ToolCallPiece& said : piece.call_pieces) {
      // The name first, then the arguments: what clients put together piece by piece.
      if (said.begins) {
        Json call = tool_call_json({said.name, "", said.id});
        call["index"] = part.begun_calls++;
        delta_chunk(choice, {{"tool_calls", Json::array({call})}}, nullptr, nullptr);
      }
      if (said.arguments.empty()) continue;
      const Json more = {{"index", part.begun_calls - 1},
                         {"function", {{"arguments", said.arguments}}}};
      delta_chunk(choice, {{"tool_calls", Json::array({more})}}, nullptr, nullptr);
    }
    if (piece.text.empty() && piece.reasoning.empty() && piece.call_pieces.empty()) {
      delta_chunk(choice, {{"content", ""}}, nullptr, logprobs);
    }
  }

  void end_stream(size_t choice) override {
    delta_chunk(choice, Json::object(), finish_reason(choice).c_str(), nullptr);
  }

  Json whole_choice(size_t choice) override {
    Part& part = parts_[choice];
    Json message;
    message["role"] = "assistant";
    message["content"] = part.text.empty() && !part.calls.empty() ? Json() : Json(part.text);
    message["refusal"] = nullptr;
    if (!part.reasoning.empty()) message["reasoning_content"] = part.reasoning;
    if (!part.calls.empty()) message["tool_calls"] = std::move(part.calls);
    Json entry;
    entry["index"] = choice;
    entry["message"] = std::move(message);
    entry["logprobs"] = logprobs_ ? chat_logprobs(model(), part.logprobs) : Json();
    entry["finish_reason"] = finish_reason(choice);
    return entry;
  }

  const bool logprobs_;
  std::vector<Part> parts_;
};

// OpenAI's first form of tools, whose calls come in a field of their own.
void refuse_old_functions(FieldReader& in) {
  const Json* functions = in.list("functions");
  if (functions != nullptr && !functions->empty()) {
    in.fail("functions", "'functions' is not supported; send 'tools'");
  }
  const Json* call = in.get("function_call");
  if (call != nullptr && *call != "none" && *call != "auto") {
    in.fail("function_call", "'function_call' is not supported; send 'tools' and 'tool_choice'");
  }
}

}  // namespace

void post_chat_completions(const ServerContext& context, const HttpRequest& request,
                           const HttpReplyPtr& reply) {
  const ServedModel& model = *context.model;
  Json body;
  if (const auto error = parse_body(request.body, body)) return send_error(*reply, *error);
  FieldReader in(body);
  AnswerFields fields = read_answer_fields(model, in);
  const bool logprobs = in.flag("logprobs", false);
  const int64_t top = in.whole("top_logprobs", 0, 0, 20);
  if (logprobs) fields.logprobs = static_cast<int>(top);
  const std::optional<int64_t> slot = read_resume_slot(model, in);
  const Json* messages = in.list("messages");
  if (messages == nullptr && !slot) in.fail("messages", "'messages' is missing");
  ChatInput input;
  if (const Json* extra = in.object("chat_template_kwargs")) input.extra = *extra;
  if (const std::string effort = in.text("reasoning_effort"); !effort.empty()) {
    set_reasoning_effort(effort, input.extra);
  }
  input.continue_last = in.flag("continue_final_message", true);
  const Json* tools = in.list("tools");
  const Json* choice = in.get("tool_choice");
  refuse_old_functions(in);
  if (in.error()) return send_error(*reply, *in.error());
  runtime::SlotText resumed;
  if (slot) {
    if (const auto error = read_resumed(context, body, "messages", *slot, in, fields, resumed)) {
      return send_error(*reply, *error);
    }
    if (const auto error = check_unfinished(model, *slot, resumed, fields)) {
      return send_error(*reply, *error);
    }
    input.rendered = prompt_text(model, resumed);
    input.rendered_ids = resumed.tokens;
  } else if (const auto error = read_messages(*messages, input.messages)) {
    return send_error(*reply, *error);
  }
  if (tools != nullptr) {
    if (const auto error = read_tools(*tools, ToolForm::Nested, input.tools)) {
      return send_error(*reply, *error);
    }
  }
  if (const auto error =
          apply_tool_choice(model, choice, ToolForm::Nested, input.tools, fields.constraint)) {
    return send_error(*reply, *error);
  }
  std::vector<AnswerSpec> specs;
  if (const auto error = make_chat_specs(context, fields, std::move(input), specs)) {
    return send_error(*reply, *error);
  }
  for (AnswerSpec& spec : specs) spec.stream_calls = fields.stream;
  if (slot) {
    go_on(resumed, specs[0]);
    specs[0].tell_answered = true;
  }
  std::make_shared<ChatCompletion>(context.model, reply, fields, logprobs)->start(std::move(specs));
}

}  // namespace ktx::server

// POST /v1/chat/completions.
#include "lib/server/answer/chat_specs.h"
#include "lib/server/answer/resumed_slot.h"
#include "lib/server/answer/tool_choice.h"
#include "lib/server/endpoints.h"
#include "lib/server/native/native_answer.h"
#include "lib/server/openai/openai_answer.h"
#include "lib/server/request/chat_prompt_input.h"
#include "lib/server/request/client_tools.h"
#include "lib/server/request/reasoning_fields.h"

namespace ktx::server {
namespace {

// `tool`: what was called; null for what was not offered.
Json tool_call_json(const text::ToolCall& call, const ClientTool* tool) {
  Json json;
  json["id"] = call.id.empty() ? new_id("call_") : call.id;
  if (tool != nullptr && tool->form == CallForm::Custom) {
    json["type"] = "custom";
    json["custom"] = {{"name", tool->name}, {"input", custom_input(call.arguments)}};
  } else {
    json["type"] = "function";
    json["function"] = {{"name", call.name}, {"arguments", call.arguments}};
  }
  return json;
}

struct ChatRequest {
  AnswerFields fields;
  bool logprobs = false, verbose = false;
  std::vector<ClientTool> tools;
  std::vector<AnswerSpec> specs;
};

class ChatCompletion final : public OpenAiAnswer {
 public:
  // `verbose`: what it is to tell of the request, in llama.cpp's own form.
  ChatCompletion(std::shared_ptr<ServedModel> model, HttpReplyPtr reply, const ChatRequest& request,
                 std::optional<NativeRequest> verbose)
      : OpenAiAnswer(std::move(model), std::move(reply), request.fields, "chatcmpl-",
                     {"chat.completion", "chat.completion.chunk"},
                     static_cast<size_t>(request.fields.n)),
        logprobs_(request.logprobs),
        tools_(request.tools),
        verbose_(std::move(verbose)),
        parts_(static_cast<size_t>(request.fields.n)) {}

 private:
  struct Part {
    std::string text, reasoning;
    Json calls = Json::array();
    size_t begun_calls = 0;      // when they are streamed
    std::optional<Json> custom;  // call that is being said: it is sent when it is whole
    std::string custom_arguments;
    std::vector<PieceLogprob> logprobs;
    std::vector<int32_t> tokens;                // for `verbose`
    std::optional<runtime::RequestEnd> so_far;  // of the last piece
  };

  void delta_chunk(size_t choice, Json delta, const char* finish, const Json& logprobs) {
    Json entry;
    entry["index"] = choice;
    entry["delta"] = std::move(delta);
    entry["logprobs"] = logprobs;
    entry["finish_reason"] = finish == nullptr ? Json() : Json(finish);
    if (finish != nullptr) entry["id_slot"] = slot(choice);
    chunk(std::move(entry), parts_[choice].so_far);
  }

  void begin_stream() override {
    for (size_t i = 0; i < parts_.size(); ++i) {
      delta_chunk(i, {{"role", "assistant"}, {"content", nullptr}}, nullptr, nullptr);
    }
  }

  void on_piece(size_t choice, Piece piece) override {
    Part& part = parts_[choice];
    part.so_far = std::move(piece.so_far);
    if (verbose_) part.tokens.insert(part.tokens.end(), piece.tokens.begin(), piece.tokens.end());
    for (const text::ToolCall& call : piece.calls) {
      part.calls.push_back(tool_call_json(call, client_tool(tools_, call.name)));
    }
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
        end_custom(choice);
        const ClientTool* tool = client_tool(tools_, said.name);
        Json call = tool_call_json({said.name, "", said.id}, tool);
        call["index"] = part.begun_calls++;
        delta_chunk(choice, {{"tool_calls", Json::array({call})}}, nullptr, nullptr);
        if (call["type"] == "custom") part.custom = call["index"];
      }
      if (said.arguments.empty()) continue;
      if (part.custom) {
        part.custom_arguments += said.arguments;
        continue;
      }
      const Json more = {{"index", part.begun_calls - 1},
                         {"function", {{"arguments", said.arguments}}}};
      delta_chunk(choice, {{"tool_calls", Json::array({more})}}, nullptr, nullptr);
    }
    if (piece.text.empty() && piece.reasoning.empty() && piece.call_pieces.empty()) {
      delta_chunk(choice, {{"content", ""}}, nullptr, logprobs);
    }
  }

  // The text of a custom tool's call is known when its arguments are whole.
  void end_custom(size_t choice) {
    Part& part = parts_[choice];
    if (!part.custom) return;
    const Json more = {{"index", *part.custom},
                       {"custom", {{"input", custom_input(part.custom_arguments)}}}};
    delta_chunk(choice, {{"tool_calls", Json::array({more})}}, nullptr, nullptr);
    part.custom.reset();
    part.custom_arguments.clear();
  }

  void end_stream(size_t choice) override {
    end_custom(choice);
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
    entry["id_slot"] = slot(choice);
    return entry;
  }

  Json native_answer(size_t choice, const ChoiceEnd& end) override {
    if (!verbose_) return nullptr;
    const Part& part = parts_[choice];
    const std::string said = model().tokenizer->decode(part.tokens, true);
    return native_end(model(), choice, *verbose_, said, part.tokens, end,
                      said.find('\n') != std::string::npos);
  }

  const bool logprobs_;
  const std::vector<ClientTool> tools_;
  const std::optional<NativeRequest> verbose_;
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

// The whole request: its fields and an answer to be given for each choice.
ApiResult<ChatRequest> read_chat(const ServerContext& context, const HttpRequest& http) {
  const Json body = KTX_TRY(parse_body(http.body));
  ChatRequest request;
  const ServedModel& model = *context.model;
  FieldReader in(body);
  AnswerFields& fields = request.fields = read_answer_fields(model, in);
  request.logprobs = in.flag("logprobs", false);
  request.verbose = in.flag("verbose", model.verbose);
  const int64_t top = in.whole("top_logprobs", 0, 0, 20);
  if (request.logprobs) fields.logprobs = static_cast<int>(top);
  const std::optional<int64_t> slot = read_resume_slot(model, in);
  const Json* messages = in.list("messages");
  if (messages == nullptr && !slot) in.fail("messages", "'messages' is missing");
  ChatInput input = input_for(model);
  read_reasoning_fields(model, in, input, fields.reasoning);
  read_continuation(in, input);
  const Json* tools = in.list("tools");
  const Json* choice = in.get("tool_choice");
  refuse_old_functions(in);
  KTX_TRY(in.status());
  runtime::SlotText resumed;
  if (slot) {
    KTX_TRY(read_resumed(context, body, "messages", *slot, in, fields, resumed));
    KTX_TRY(check_unfinished(model, *slot, resumed, fields));
    input.rendered = prompt_text(model, resumed);
    input.rendered_ids = resumed.tokens;
  } else {
    input.messages = KTX_TRY(read_messages(*messages, input.notes, input.seen()));
  }
  RequestTools offered = KTX_TRY(offered_tools(tools, ToolForm::Nested));
  KTX_TRY(use_tools(model, choice, ToolForm::Nested, offered, input, fields.constraint));
  request.tools = std::move(offered.clients);
  request.specs = KTX_TRY(make_chat_specs(context, fields, std::move(input)));
  for (AnswerSpec& spec : request.specs) spec.stream_calls = fields.stream;
  if (slot) {
    go_on(resumed, request.specs[0]);
    request.specs[0].tell_answered = true;
  }
  return request;
}

}  // namespace

ApiStatus post_chat_completions(const ServerContext& context, const HttpRequest& request,
                                const HttpReplyPtr& reply) {
  ChatRequest chat = KTX_TRY(read_chat(context, request));
  const ServedModel& model = *context.model;
  std::optional<NativeRequest> verbose;
  if (chat.verbose) {
    verbose = {model.tokenizer->decode(chat.specs[0].prompt, true),
               generation_settings(model, chat.fields, chat.fields.own_lora.value_or(context.lora)),
               true};
  }
  std::make_shared<ChatCompletion>(context.model, reply, chat, std::move(verbose))
      ->start(std::move(chat.specs));
  return {};
}

ApiStatus post_chat_input_tokens(const ServerContext& context, const HttpRequest& request,
                                 const HttpReplyPtr& reply) {
  context.asker->counts_only = true;
  ChatRequest chat = KTX_TRY(read_chat(context, request));
  send_input_tokens(*reply, chat.specs[0].prompt.size());
  return {};
}

}  // namespace ktx::server

// POST /v1/responses: text in; text, reasoning and calls out, each an item of `output`.
// Nothing is stored: what needs that is refused by its name.
#include <fmt/format.h>

#include <algorithm>
#include <ctime>

#include "lib/server/answer/answer_fields.h"
#include "lib/server/answer/chat_specs.h"
#include "lib/server/answer/tool_choice.h"
#include "lib/server/endpoints.h"
#include "lib/server/openai/openai_format.h"
#include "lib/server/openai/response_calls.h"
#include "lib/server/openai/responses_input.h"
#include "lib/server/request/constraint_fields.h"
#include "lib/server/request/reasoning_fields.h"

namespace ktx::server {
namespace {

struct ResponseRequest {
  AnswerFields fields;
  Json echoed;  // fields of the answer
  bool logprobs = false;
  std::vector<ClientTool> tools;
  std::vector<AnswerSpec> specs;
};

class ResponseAnswer final : public AnswerJob {
 public:
  ResponseAnswer(std::shared_ptr<ServedModel> model, HttpReplyPtr reply, ResponseRequest& request)
      : AnswerJob(std::move(model), std::move(reply)),
        stream_(request.fields.stream),
        logprobs_(request.logprobs),
        id_(new_id("resp_")),
        created_(std::time(nullptr)),
        echoed_(std::move(request.echoed)),
        tools_(std::move(request.tools)) {}

 private:
  Json response(const char* status) const {
    Json json = {{"id", id_},           {"object", "response"}, {"created_at", created_},
                 {"status", status},    {"error", nullptr},     {"incomplete_details", nullptr},
                 {"model", model().id}, {"output", output_}};
    json.update(echoed_);
    return json;
  }

  void event(const char* type, Json json) {
    Json whole = {{"type", type}, {"sequence_number", sequence_++}};
    whole.update(json);
    if (so_far_) whole["timings"] = timings_json(*so_far_);
    reply().write(sse(type, whole));
  }
  // With the place of the open item.
  void item_event(const char* type, const Json& more) {
    if (!stream_) return;
    Json json = {{"item_id", output_.back()["id"]}, {"output_index", output_.size() - 1}};
    json.update(more);
    event(type, std::move(json));
  }
  void part_event(const char* type, const Json& more) {
    Json json = {{"content_index", 0}};
    json.update(more);
    item_event(type, json);
  }

  // The part of a message or of reasoning.
  Json part() const {
    if (open_ == "reasoning") return {{"type", "reasoning_text"}, {"text", text_}};
    Json json = {{"type", "output_text"}, {"text", text_}, {"annotations", Json::array()}};
    if (logprobs_) json["logprobs"] = said_logprobs_;
    return json;
  }

  void open_item(const std::string& type, Json item) {
    close_item();
    open_ = type;
    output_.push_back(std::move(item));
    if (!stream_) return;
    event("response.output_item.added",
          {{"output_index", output_.size() - 1}, {"item", output_.back()}});
  }

  // Goes on in a message or in reasoning, or begins one.
  void add_text(const std::string& type, const std::string& text) {
    if (text.empty()) return;
    const bool reasoning = type == "reasoning";
    if (open_ != type) {
      Json item = {{"type", type},
                   {"id", new_id(reasoning ? "rs_" : "msg_")},
                   {"content", Json::array()},
                   {"status", "in_progress"}};
      if (reasoning) item["summary"] = Json::array();
      if (!reasoning) item["role"] = "assistant";
      open_item(type, std::move(item));
      part_event("response.content_part.added", {{"part", part()}});
    }
    text_ += text;
    Json delta = {{"delta", text}};
    if (!reasoning) delta["logprobs"] = take_logprobs();
    part_event(reasoning ? "response.reasoning_text.delta" : "response.output_text.delta", delta);
  }

  // Those of tokens since the last delta, which are the message's from now on.
  Json take_logprobs() {
    Json list = std::move(new_logprobs_);
    new_logprobs_ = Json::array();
    said_logprobs_.insert(said_logprobs_.end(), list.begin(), list.end());
    return list;
  }

  void close_item(const char* status = "completed") {
    if (open_.empty()) return;
    Json& item = output_.back();
    item["status"] = status;
    if (open_ == "call") {
      close_call(item);
    } else {
      if (open_ == "message") take_logprobs();
      item["content"] = Json::array({part()});
      Json said = {{"text", text_}};
      if (open_ == "message") said["logprobs"] = said_logprobs_;
      part_event(open_ == "message" ? "response.output_text.done" : "response.reasoning_text.done",
                 said);
      part_event("response.content_part.done", {{"part", part()}});
      text_.clear();
      said_logprobs_ = Json::array();
    }
    if (stream_) {
      event("response.output_item.done", {{"output_index", output_.size() - 1}, {"item", item}});
    }
    open_.clear();
  }

  void begin_call(const std::string& name, const std::string& id) {
    const ClientTool* tool = client_tool(tools_, name);
    form_ = tool == nullptr ? CallForm::Function : tool->form;
    open_item("call", begun_call_item(tool, name, id));
  }

  // Arguments of functions are sent as they come; others are known when they are whole.
  void add_arguments(const std::string& said) {
    if (said.empty()) return;
    text_ += said;
    if (form_ != CallForm::Function) return;
    item_event("response.function_call_arguments.delta", {{"delta", said}});
  }

  void close_call(Json& item) {
    complete_call_item(form_, text_, item);
    text_.clear();
    if (form_ == CallForm::Function) {
      item_event("response.function_call_arguments.done",
                 {{"name", item["name"]}, {"arguments", item["arguments"]}});
    } else if (form_ == CallForm::Custom) {
      item_event("response.custom_tool_call_input.delta", {{"delta", item["input"]}});
      item_event("response.custom_tool_call_input.done", {{"input", item["input"]}});
    }
  }

  void on_accepted() override {
    if (!stream_) return;
    reply().begin(200, kEventStream, stream_headers());
    event("response.created", {{"response", response("in_progress")}});
    event("response.in_progress", {{"response", response("in_progress")}});
  }

  void on_progress(size_t, const runtime::PromptProgress& progress) override {
    event("response.in_progress",
          {{"response", response("in_progress")}, {"prompt_progress", progress_json(progress)}});
  }

  void on_piece(size_t, Piece piece) override {
    so_far_ = std::move(piece.so_far);
    add_text("reasoning", piece.reasoning);
    // Log-probabilities of a message alone: the protocol has no place for those of other tokens.
    const bool other = piece.text.empty() && (!piece.reasoning.empty() || !piece.calls.empty() ||
                                              !piece.call_pieces.empty());
    if (other) new_logprobs_ = Json::array();
    if (logprobs_ && !other) {
      const Json list = chat_logprobs(model(), piece.logprobs)["content"];
      new_logprobs_.insert(new_logprobs_.end(), list.begin(), list.end());
    }
    add_text("message", piece.text);
    for (const text::ToolCall& call : piece.calls) {
      begin_call(call.name, call.id);
      add_arguments(call.arguments);
      close_item();
    }
    for (const text::ToolCallPiece& said : piece.call_pieces) {
      if (said.begins) begin_call(said.name, said.id);
      add_arguments(said.arguments);
    }
  }

  void on_choice_end(size_t, const ChoiceEnd& end) override { end_ = end; }

  void on_all_ended() override {
    if (end_.failed) {
      if (!stream_) return send_error(reply(), end_.error);
      event("error",
            {{"code", end_.error.code}, {"message", end_.error.message}, {"param", nullptr}});
      return reply().end();
    }
    const bool cut = end_.finish_reason == "length";
    close_item(cut ? "incomplete" : "completed");
    if (cut && !output_.empty()) output_.back()["status"] = "incomplete";
    Json json = response(cut ? "incomplete" : "completed");
    if (cut) json["incomplete_details"] = {{"reason", "max_output_tokens"}};
    if (!cut) json["completed_at"] = std::time(nullptr);
    const runtime::RequestEnd& result = end_.result;
    json["id_slot"] = result.slot;
    so_far_ = result;  // the last event has the timings of the whole
    json["usage"] = {{"input_tokens", result.prompt_tokens},
                     {"input_tokens_details", {{"cached_tokens", result.cached_tokens}}},
                     {"output_tokens", result.completion_tokens},
                     {"output_tokens_details", {{"reasoning_tokens", end_.reasoning_tokens}}},
                     {"total_tokens", result.prompt_tokens + result.completion_tokens}};
    if (!stream_) return reply().send(200, "application/json", dump(json));
    event(cut ? "response.incomplete" : "response.completed", {{"response", json}});
    reply().end();
  }

  void on_refused(const ApiError& error) override { send_error(reply(), error); }

  const bool stream_, logprobs_;
  const std::string id_;
  const int64_t created_;
  const Json echoed_;
  const std::vector<ClientTool> tools_;
  int64_t sequence_ = 0;
  std::string open_;  // the last item, while more of it comes: "message", "reasoning", "call"
  CallForm form_ = CallForm::Function;
  std::string text_;  // of the open item: its text or the arguments of the call
  Json new_logprobs_ = Json::array(), said_logprobs_ = Json::array();
  Json output_ = Json::array();
  std::optional<runtime::RequestEnd> so_far_;
  ChoiceEnd end_;
};

// Fields that need what is kept between requests.
void refuse_stored(FieldReader& in) {
  const std::pair<const char*, const char*> kStored[] = {
      {"previous_response_id", "send the whole conversation"},
      {"conversation", "send the whole conversation as 'input'"},
      {"prompt", "send 'instructions' and 'input'"},
  };
  for (const auto& [name, advice] : kStored) {
    const Json* value = in.get(name);
    if (value == nullptr || *value == "") continue;
    in.fail(name, fmt::format("'{}': nothing is stored here; {}", name, advice));
  }
  if (in.flag("background", false)) {
    in.fail("background", "'background': answers are not kept here; use 'stream' and wait for it");
  }
}

// Fields of the request that come back in the response, with the value of those that are missing.
Json echo(const Json& body, const AnswerFields& fields) {
  Json echoed = {{"background", false},
                 {"conversation", nullptr},
                 {"instructions", nullptr},
                 {"max_output_tokens", nullptr},
                 {"max_tool_calls", nullptr},
                 {"metadata", Json::object()},
                 {"parallel_tool_calls", true},
                 {"previous_response_id", nullptr},
                 {"prompt_cache_key", nullptr},
                 {"reasoning", {{"effort", nullptr}, {"summary", nullptr}}},
                 {"safety_identifier", nullptr},
                 {"service_tier", "default"},
                 {"text", {{"format", {{"type", "text"}}}}},
                 {"tool_choice", "auto"},
                 {"tools", Json::array()},
                 {"top_logprobs", 0},
                 {"truncation", "disabled"},
                 {"user", nullptr}};
  for (auto& [name, value] : echoed.items()) {
    const auto given = body.find(name);
    if (given == body.end() || given->is_null()) continue;
    if (value.is_object() && given->is_object()) {
      value.update(*given);
    } else {
      value = *given;
    }
  }
  echoed["service_tier"] = "default";
  echoed["temperature"] = decimal(fields.sampling.temperature);
  echoed["top_p"] = decimal(fields.sampling.top_p);
  echoed["store"] = false;
  return echoed;
}

ApiResult<ResponseRequest> read_response(const ServerContext& context, const HttpRequest& http) {
  const Json body = KTX_TRY(parse_body(http.body));
  ResponseRequest request;
  const ServedModel& model = *context.model;
  FieldReader in(body);
  AnswerFields& fields = request.fields = read_answer_fields(model, in);
  if (const auto limit = in.maybe_count("max_output_tokens", 1)) {
    fields.max_tokens = *limit;
  }
  fields.n = 1;
  const Json* include = in.list("include");
  const int64_t top = in.whole("top_logprobs", 0, 0, 20);
  request.logprobs =
      include != nullptr &&
      std::find(include->begin(), include->end(), "message.output_text.logprobs") != include->end();
  if (request.logprobs) fields.logprobs = static_cast<int>(top);
  refuse_stored(in);
  const std::string instructions = in.text("instructions");
  const Json* given = in.get("input");
  if (given == nullptr) in.fail("input", "'input' is missing");
  const Json* tools = in.list("tools");
  const Json* choice = in.get("tool_choice");
  if (const Json* text = in.object("text")) {
    const auto format = text->find("format");
    if (format != text->end() && !format->is_null()) {
      read_format(*format, "text.format", in, fields.constraint);
    }
  }
  ChatInput input = input_for(model);
  read_reasoning_fields(model, in, input, fields.reasoning);
  KTX_TRY(in.status());
  RequestTools offered = KTX_TRY(offered_tools(tools, ToolForm::Flat));
  KTX_TRY(read_responses_input(*given, instructions, input, offered));
  KTX_TRY(use_tools(model, choice, ToolForm::Flat, offered, input, fields.constraint));
  request.tools = std::move(offered.clients);
  request.specs = KTX_TRY(make_chat_specs(context, fields, std::move(input)));
  request.echoed = echo(body, fields);
  for (AnswerSpec& spec : request.specs) spec.stream_calls = fields.stream;
  return request;
}

}  // namespace

ApiStatus post_responses(const ServerContext& context, const HttpRequest& request,
                         const HttpReplyPtr& reply) {
  ResponseRequest response = KTX_TRY(read_response(context, request));
  std::make_shared<ResponseAnswer>(context.model, reply, response)
      ->start(std::move(response.specs));
  return {};
}

ApiStatus post_responses_input_tokens(const ServerContext& context, const HttpRequest& request,
                                      const HttpReplyPtr& reply) {
  context.asker->counts_only = true;
  ResponseRequest response = KTX_TRY(read_response(context, request));
  send_notes(response.specs[0].notes, *reply);
  send_input_tokens(*reply, response.specs[0].prompt.size());
  return {};
}

}  // namespace ktx::server

// POST /v1/responses in its basic form: text in, text, reasoning and function calls out.
// Nothing is stored: `previous_response_id` is refused.
#include <fmt/format.h>

#include <ctime>

#include "lib/server/answer_fields.h"
#include "lib/server/chat_prompt_input.h"
#include "lib/server/constraint_fields.h"
#include "lib/server/endpoints.h"
#include "lib/server/openai_format.h"
#include "lib/server/tool_choice.h"

namespace ktx::server {
namespace {

class ResponseAnswer final : public AnswerJob {
 public:
  ResponseAnswer(std::shared_ptr<ServedModel> model, HttpReplyPtr reply, bool stream, Json echoed)
      : AnswerJob(std::move(model), std::move(reply)),
        stream_(stream),
        id_(new_id("resp_")),
        created_(std::time(nullptr)),
        echoed_(std::move(echoed)) {}

 private:
  Json response(const char* status) const {
    Json json = {{"id", id_},           {"object", "response"}, {"created_at", created_},
                 {"status", status},    {"error", nullptr},     {"incomplete_details", nullptr},
                 {"model", model().id}, {"output", output_},    {"parallel_tool_calls", true},
                 {"store", false}};
    json.update(echoed_);
    return json;
  }

  void event(const char* type, Json json) {
    Json whole = {{"type", type}, {"sequence_number", sequence_++}};
    whole.update(json);
    if (so_far_) whole["timings"] = timings_json(*so_far_);
    reply().write(sse(type, whole));
  }

  size_t index() const { return output_.size() - 1; }

  void open_item(const std::string& type, Json item) {
    if (open_ == type && type == "message") return;
    close_item();
    open_ = type;
    output_.push_back(std::move(item));
    if (!stream_) return;
    event("response.output_item.added", {{"output_index", index()}, {"item", output_.back()}});
    if (type == "message") {
      event("response.content_part.added",
            {{"item_id", output_.back()["id"]},
             {"output_index", index()},
             {"content_index", 0},
             {"part", {{"type", "output_text"}, {"text", ""}, {"annotations", Json::array()}}}});
    }
  }

  void close_item(const char* status = "completed") {
    if (open_.empty()) return;
    Json& item = output_.back();
    item["status"] = status;
    if (open_ == "message") {
      const Json part = {{"type", "output_text"}, {"text", text_}, {"annotations", Json::array()}};
      item["content"] = Json::array({part});
      if (stream_) {
        const Json where = {
            {"item_id", item["id"]}, {"output_index", index()}, {"content_index", 0}};
        Json done = where;
        done["text"] = text_;
        event("response.output_text.done", done);
        Json part_done = where;
        part_done["part"] = part;
        event("response.content_part.done", part_done);
      }
      text_.clear();
    } else if (open_ == "reasoning") {
      item["content"] = Json::array({{{"type", "reasoning_text"}, {"text", reasoning_}}});
      reasoning_.clear();
    } else if (open_ == "function_call" && stream_) {
      event("response.function_call_arguments.done", {{"item_id", item["id"]},
                                                      {"output_index", index()},
                                                      {"name", item["name"]},
                                                      {"arguments", item["arguments"]}});
    }
    if (stream_) {
      event("response.output_item.done", {{"output_index", index()}, {"item", item}});
    }
    open_.clear();
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
    if (!piece.reasoning.empty()) {
      if (open_ != "reasoning") {
        open_item("reasoning", {{"type", "reasoning"},
                                {"id", new_id("rs_")},
                                {"summary", Json::array()},
                                {"content", Json::array()},
                                {"status", "in_progress"}});
      }
      reasoning_ += piece.reasoning;
      if (stream_) {
        event("response.reasoning_text.delta", {{"item_id", output_.back()["id"]},
                                                {"output_index", index()},
                                                {"content_index", 0},
                                                {"delta", piece.reasoning}});
      }
    }
    if (!piece.text.empty()) {
      open_item("message", {{"type", "message"},
                            {"id", new_id("msg_")},
                            {"role", "assistant"},
                            {"content", Json::array()},
                            {"status", "in_progress"}});
      text_ += piece.text;
      if (stream_) {
        event("response.output_text.delta", {{"item_id", output_.back()["id"]},
                                             {"output_index", index()},
                                             {"content_index", 0},
                                             {"delta", piece.text},
                                             {"logprobs", Json::array()}});
      }
    }
    for (const text::ToolCall& call : piece.calls) {
      begin_call(call.name, call.id);
      output_.back()["arguments"] = call.arguments;
      close_item();
    }
    for (const text::ToolCallPiece& said : piece.call_pieces) {
      if (said.begins) begin_call(said.name, said.id);
      if (said.arguments.empty()) continue;
      Json& arguments = output_.back()["arguments"];
      arguments = arguments.get<std::string>() + said.arguments;
      event("response.function_call_arguments.delta", {{"item_id", output_.back()["id"]},
                                                       {"output_index", index()},
                                                       {"delta", said.arguments}});
    }
  }

  void begin_call(const std::string& name, const std::string& id) {
    open_item("function_call", {{"type", "function_call"},
                                {"id", new_id("fc_")},
                                {"call_id", id.empty() ? new_id("call_") : id},
                                {"name", name},
                                {"arguments", ""},
                                {"status", "in_progress"}});
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

  const bool stream_;
  const std::string id_;
  const int64_t created_;
  const Json echoed_;
  int64_t sequence_ = 0;
  std::string open_, text_, reasoning_;
  Json output_ = Json::array();
  std::optional<runtime::RequestEnd> so_far_;
  ChoiceEnd end_;
};

// Items of `input` as messages.
std::optional<ApiError> convert_input(const Json& input, Json& messages) {
  if (input.is_string()) {
    messages.push_back({{"role", "user"}, {"content", input}});
    return std::nullopt;
  }
  if (!input.is_array()) {
    return ApiError{400, "'input' must be a string or a list of items", "input", ""};
  }
  for (const Json& item : input) {
    const std::string type = item.is_object() ? string_or(item, "type", "message") : "other";
    if (type == "message") {
      messages.push_back(item);
    } else if (type == "function_call") {
      messages.push_back(
          {{"role", "assistant"},
           {"content", nullptr},
           {"tool_calls", Json::array({{{"id", string_or(item, "call_id", "")},
                                        {"type", "function"},
                                        {"function",
                                         {{"name", string_or(item, "name", "")},
                                          {"arguments", string_or(item, "arguments", "{}")}}}}})}});
    } else if (type == "function_call_output") {
      messages.push_back({{"role", "tool"},
                          {"tool_call_id", string_or(item, "call_id", "")},
                          {"content", item.contains("output") ? item["output"] : Json("")}});
    } else if (type != "reasoning") {
      return ApiError{400,
                      fmt::format("'input' has an item of type '{}', expected message, "
                                  "function_call or function_call_output",
                                  type),
                      "input", ""};
    }
  }
  return std::nullopt;
}

struct ResponseRequest {
  AnswerFields fields;
  Json echoed;  // fields of the answer
  std::vector<AnswerSpec> specs;
};

std::optional<ApiError> read_response(const ServerContext& context, const Json& body,
                                      ResponseRequest& request) {
  const ServedModel& model = *context.model;
  FieldReader in(body);
  AnswerFields& fields = request.fields = read_answer_fields(model, in);
  if (const auto limit = in.maybe_whole("max_output_tokens", 1, int64_t{1} << 40)) {
    fields.max_tokens = *limit;
  }
  fields.n = 1;
  const std::string instructions = in.text("instructions");
  if (!in.text("previous_response_id").empty()) {
    in.fail("previous_response_id", "responses are not stored here; send the whole conversation");
  }
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
  std::string effort;
  if (const Json* reasoning = in.object("reasoning")) effort = string_or(*reasoning, "effort", "");
  if (in.error()) return in.error();
  Json messages = Json::array();
  if (!instructions.empty()) messages.push_back({{"role", "system"}, {"content", instructions}});
  if (auto error = convert_input(*given, messages)) return error;
  ChatInput input;
  if (!effort.empty()) set_reasoning_effort(effort, input.extra);
  if (auto error = read_messages(messages, input.messages)) return error;
  if (tools != nullptr) {
    if (auto error = read_tools(*tools, ToolForm::Flat, input.tools)) {
      return error;
    }
  }
  if (auto error =
          apply_tool_choice(model, choice, ToolForm::Flat, input.tools, fields.constraint)) {
    return error;
  }
  if (auto error = make_chat_specs(context, fields, std::move(input), request.specs)) {
    return error;
  }
  Json& echoed = request.echoed = {{"instructions", nullptr},
                                   {"metadata", Json::object()},
                                   {"temperature", decimal(fields.sampling.temperature)},
                                   {"top_p", decimal(fields.sampling.top_p)},
                                   {"tool_choice", choice == nullptr ? Json("auto") : *choice},
                                   {"tools", tools == nullptr ? Json::array() : *tools}};
  if (!instructions.empty()) echoed["instructions"] = instructions;
  for (AnswerSpec& spec : request.specs) spec.stream_calls = fields.stream;
  return std::nullopt;
}

}  // namespace

void post_responses(const ServerContext& context, const HttpRequest& request,
                    const HttpReplyPtr& reply) {
  Json body;
  if (const auto error = parse_body(request.body, body)) return send_error(*reply, *error);
  ResponseRequest response;
  if (const auto error = read_response(context, body, response)) return send_error(*reply, *error);
  std::make_shared<ResponseAnswer>(context.model, reply, response.fields.stream,
                                   std::move(response.echoed))
      ->start(std::move(response.specs));
}

void post_responses_input_tokens(const ServerContext& context, const HttpRequest& request,
                                 const HttpReplyPtr& reply) {
  Json body;
  if (const auto error = parse_body(request.body, body)) return send_error(*reply, *error);
  ResponseRequest response;
  if (const auto error = read_response(context, body, response)) return send_error(*reply, *error);
  send_input_tokens(*reply, response.specs[0].prompt.size());
}

}  // namespace ktx::server

// POST /api/chat and /api/generate: Ollama's protocol. Streams are lines of JSON.
#include <fmt/format.h>

#include "lib/server/answer/answer_fields.h"
#include "lib/server/answer/chat_specs.h"
#include "lib/server/answer/tool_choice.h"
#include "lib/server/endpoints.h"
#include "lib/server/ollama/ollama_format.h"
#include "lib/server/openai/openai_format.h"
#include "lib/server/request/client_tools.h"
#include "lib/server/request/constraint_fields.h"
#include "lib/server/request/reasoning_fields.h"
#include "lib/server/request/request_headers.h"
#include "lib/server/request/sampling_fields.h"
#include "lib/server/request/text_input.h"
#include "lib/text/exact_json.h"

namespace ktx::server {
namespace {

struct OllamaRequest {
  AnswerFields fields;
  bool chat = false;
  bool think = true;
  bool unload = false;
  std::vector<int32_t> context;  // the tokens of a conversation that goes on
  ChatInput input;
};

class OllamaAnswer final : public AnswerJob {
 public:
  // `context`: the prompt, for an answer that lists its tokens.
  OllamaAnswer(std::shared_ptr<ServedModel> model, HttpReplyPtr reply, const OllamaRequest& request,
               std::vector<int32_t> context)
      : AnswerJob(std::move(model), std::move(reply)),
        chat_(request.chat),
        stream_(request.fields.stream),
        think_(request.think),
        context_(std::move(context)) {}

 private:
  Json line(const std::string& text, const std::string& reasoning, const Json& calls) {
    Json json;
    json["model"] = ollama_name(model().id);
    json["created_at"] = rfc3339(std::chrono::system_clock::now());
    if (chat_) {
      json["message"] = {{"role", "assistant"}, {"content", text}};
      if (think_ && !reasoning.empty()) json["message"]["thinking"] = reasoning;
      if (!calls.empty()) json["message"]["tool_calls"] = calls;
    } else {
      json["response"] = text;
      if (think_ && !reasoning.empty()) json["thinking"] = reasoning;
    }
    if (!logprobs_.empty()) json["logprobs"] = std::exchange(logprobs_, Json::array());
    return json;
  }

  void on_accepted() override {
    if (stream_) reply().begin(200, "application/x-ndjson; charset=utf-8", stream_headers());
  }

  void on_piece(size_t, Piece piece) override {
    answer_.insert(answer_.end(), piece.tokens.begin(), piece.tokens.end());
    Json listed = chat_logprobs(model(), piece.logprobs);
    for (Json& item : listed["content"]) logprobs_.push_back(std::move(item));
    Json calls = Json::array();
    for (const text::ToolCall& call : piece.calls) {
      Json arguments = text::parse_json(call.arguments);
      if (arguments.is_discarded()) arguments = Json::object();
      calls.push_back(
          {{"id", call.id.empty() ? new_id("call_") : call.id},
           {"function",
            {{"index", call_count_++}, {"name", call.name}, {"arguments", std::move(arguments)}}}});
    }
    if (stream_) {
      if (piece.text.empty() && calls.empty() && (!think_ || piece.reasoning.empty())) return;
      Json json = line(piece.text, piece.reasoning, calls);
      json["done"] = false;
      return reply().write(dump(json) + "\n");
    }
    text_ += piece.text;
    reasoning_ += piece.reasoning;
    for (Json& call : calls) calls_.push_back(std::move(call));
  }

  void on_choice_end(size_t, const ChoiceEnd& end) override { end_ = end; }

  void on_all_ended() override {
    if (end_.failed) {
      if (!stream_) return send_ollama_error(reply(), end_.error);
      reply().write(dump(Json{{"error", end_.error.message}}) + "\n");
      return reply().end();
    }
    Json json = line(text_, reasoning_, calls_);
    json["done"] = true;
    add_ollama_end(json, model(), end_);
    if (!context_.empty()) json["context"] = whole_context();
    if (!stream_) return reply().send(200, "application/json", dump(json));
    reply().write(dump(json) + "\n");
    reply().end();
  }

  void on_refused(const ApiError& error) override { send_ollama_error(reply(), error); }

  // Prompt and answer, with the token that ended it: what comes next begins behind it.
  std::vector<int32_t> whole_context() const {
    std::vector<int32_t> ids = context_;
    ids.insert(ids.end(), answer_.begin(), answer_.end());
    const bool ended = end_.finish_reason == "stop" && end_.stop_string.empty();
    if (ended && model().tokenizer->eos() >= 0 && !model().tokenizer->is_eog(ids.back())) {
      ids.push_back(model().tokenizer->eos());
    }
    return ids;
  }

  const bool chat_, stream_, think_;
  const std::vector<int32_t> context_;
  std::vector<int32_t> answer_;
  Json logprobs_ = Json::array();  // that no line has had
  int call_count_ = 0;
  std::string text_, reasoning_;
  Json calls_ = Json::array();
  ChoiceEnd end_;
};

// For /api/generate: the tokens that an earlier answer listed.
void read_context(const ServedModel& model, FieldReader& in, std::vector<int32_t>& ids) {
  const Json* list = in.list("context");
  if (list == nullptr) return;
  for (const Json& id : *list) {
    const bool known = id.is_number_integer() && id >= 0 && id < model.tokenizer->size();
    if (!known) {
      return in.fail("context",
                     fmt::format("'context' has {}, which is no token of this model", show(id)));
    }
    ids.push_back(id.get<int32_t>());
  }
}

// What chat and generate have in common.
ApiResult<OllamaRequest> read_request(const ServedModel& model, const Json& body) {
  OllamaRequest out;
  out.input = input_for(model);
  FieldReader in(body);
  in.text("model");  // any is this one
  out.fields.stream = in.flag("stream", true);
  out.fields.sampling = model.sampling;
  const Json empty = Json::object();
  const Json* options = in.object("options");
  FieldReader inner(options != nullptr ? *options : empty, "options.");
  read_sampling(inner, model.new_seed(), *model.tokenizer, out.fields.sampling);
  // -1: no limit, -2: until the context is full.
  out.fields.max_tokens =
      std::max<int64_t>(-1, inner.whole("num_predict", model.max_tokens, -2, 1 << 30));
  out.fields.stop = inner.texts("stop", text::kMaxStopStrings);
  std::erase(out.fields.stop, "");
  if (!inner.status()) in.fail("options", inner.status().error().message);
  if (const Json* format = in.get("format")) {
    read_ollama_format(*format, in, out.fields.constraint);
  }
  const int64_t top = in.whole("top_logprobs", 0, 0, 20);
  if (in.flag("logprobs", false)) out.fields.logprobs = static_cast<int>(top);
  read_constraint(in, out.fields.constraint);
  out.fields.reasoning = read_reasoning_limit(model, in);
  read_reasoning_fields(model, in, out.input, out.fields.reasoning);
  if (const Json* think = in.get("think")) {
    // "low", "medium" and "high" are on.
    out.think = think->is_boolean() ? think->get<bool>() : think->is_string();
    set_reasoning_effort(model, think->is_string() ? think->get<std::string>() : "", true,
                         out.input.extra);
    if (!out.input.extra.contains("enable_thinking")) {
      out.input.extra["enable_thinking"] = out.think;
    }
  }
  const Json* keep = in.get("keep_alive");
  out.unload = keep != nullptr && (*keep == 0 || *keep == "0" || *keep == "0s");
  KTX_TRY(in.status());
  return out;
}

// Ollama clients send an empty prompt to preload a model. It is loaded already, so reply at
// once.
void send_loaded(const ServedModel& model, HttpReply& reply, bool chat, bool unload) {
  Json json;
  json["model"] = ollama_name(model.id);
  json["created_at"] = rfc3339(std::chrono::system_clock::now());
  if (chat) {
    json["message"] = {{"role", "assistant"}, {"content", ""}};
  } else {
    json["response"] = "";
  }
  json["done"] = true;
  json["done_reason"] = unload ? "unload" : "load";
  reply.send(200, "application/json", dump(json));
}

// Behind `request.context`; an answer of /api/generate lists its tokens.
void start(const ServerContext& context, const HttpReplyPtr& reply, const OllamaRequest& request,
           std::vector<AnswerSpec> specs) {
  std::vector<int32_t>& prompt = specs[0].prompt;
  const int64_t before = std::ssize(prompt);
  if (!request.context.empty() && !prompt.empty() && prompt[0] == context.model->tokenizer->bos()) {
    prompt.erase(prompt.begin());  // a text has one begin
  }
  prompt.insert(prompt.begin(), request.context.begin(), request.context.end());
  std::vector<runtime::ImageTokens>& images = specs[0].images;
  for (runtime::ImageTokens& image : images) image.first += std::ssize(prompt) - before;
  // Tokens of images mean nothing to a client.
  const bool lists = !request.chat && images.empty();
  std::make_shared<OllamaAnswer>(context.model, reply, request,
                                 lists ? prompt : std::vector<int32_t>())
      ->start(std::move(specs));
}

// Answers the conversation of `request.input`.
ApiStatus run_chat(const ServerContext& context, const HttpReplyPtr& reply,
                   const OllamaRequest& request) {
  start(context, reply, request, KTX_TRY(make_chat_specs(context, request.fields, request.input)));
  return {};
}

// Goes on with a text as it is.
ApiStatus run_raw(const ServerContext& context, const HttpReplyPtr& reply,
                  const OllamaRequest& request, const std::string& text) {
  const ServedModel& model = *context.model;
  KTX_TRY(check_size(model, "prompt", text.size()));
  ChatPrompt prompt;
  if (request.input.images && !request.input.images->files().empty()) {
    prompt = KTX_TRY(make_plain_prompt(model, text, *request.input.images, *context.asker));
  } else {
    prompt.ids = model.tokenizer->encode_prompt(text);
  }
  std::vector<AnswerSpec> specs;
  KTX_TRY(make_specs(context, request.fields, prompt.ids, specs));
  specs[0].images = std::move(prompt.images);
  start(context, reply, request, std::move(specs));
  return {};
}

// Ollama's messages in OpenAI's form: arguments are objects, thinking has another name.
Json openai_messages(const Json& list) {
  Json out = Json::array();
  for (const Json& from : list) {
    Json to = from;
    if (to.is_object()) {
      if (to.contains("thinking")) to["reasoning_content"] = to["thinking"];
      if (to.contains("tool_name")) to["name"] = to["tool_name"];
      const auto images = to.find("images");
      if (images != to.end() && images->is_array() && !images->empty()) {
        Json parts = Json::array();
        for (const Json& image : *images) parts.push_back({{"type", "image"}, {"image", image}});
        parts.push_back({{"type", "text"}, {"text", string_or(to, "content", "")}});
        to["content"] = std::move(parts);
      }
    }
    out.push_back(std::move(to));
  }
  return out;
}

}  // namespace

ApiStatus post_ollama_chat(const ServerContext& context, const HttpRequest& request,
                           const HttpReplyPtr& reply) {
  const ServedModel& model = *context.model;
  const Json body = KTX_TRY(parse_body(request.body));
  OllamaRequest in = KTX_TRY(read_request(model, body));
  in.chat = true;
  FieldReader fields(body);
  const Json* messages = fields.list("messages");
  const Json* tools = fields.list("tools");
  KTX_TRY(fields.status());
  if (messages == nullptr || messages->empty()) {
    send_loaded(model, *reply, true, in.unload);
    return {};
  }
  in.input.messages =
      KTX_TRY(read_messages(openai_messages(*messages), in.input.notes, in.input.seen()));
  RequestTools offered = KTX_TRY(offered_tools(tools, ToolForm::Nested));
  // Not a field of Ollama's own; clients of several servers send it.
  KTX_TRY(use_tools(model, fields.get("tool_choice"), ToolForm::Nested, offered, in.input,
                    in.fields.constraint));
  return run_chat(context, reply, in);
}

ApiStatus post_ollama_generate(const ServerContext& context, const HttpRequest& request,
                               const HttpReplyPtr& reply) {
  const ServedModel& model = *context.model;
  const Json body = KTX_TRY(parse_body(request.body));
  OllamaRequest in = KTX_TRY(read_request(model, body));
  FieldReader fields(body);
  const std::string text = fields.text("prompt");
  const std::string system = fields.text("system");
  const bool raw = fields.flag("raw", false) || !model.chat_template;
  if (!fields.text("suffix").empty()) fields.fail("suffix", "'suffix' is not supported");
  const Json* images = fields.list("images");
  const bool shows = images != nullptr && !images->empty();
  if (shows && !in.input.images) {
    fields.fail("images",
                "'images' has pictures; this model reads text only; where there is a projector for "
                "it (mmproj), compile it with that: ktx-compile --mmproj FILE");
  }
  read_context(model, fields, in.context);
  KTX_TRY(fields.status());
  std::string marks;
  for (size_t i = 0; shows && i < images->size(); ++i) {
    const Json part = {{"image", (*images)[i]}};
    KTX_TRY(in.input.images->add(part, fmt::format("images[{}]", i), marks));
  }
  if (text.empty() && !shows) {
    send_loaded(model, *reply, false, in.unload);
    return {};
  }
  if (raw) return run_raw(context, reply, in, text);
  if (!system.empty()) {
    in.input.messages.push_back(
        {{"role", "system"}, {"content", without_request_headers(system, in.input.notes)}});
  }
  in.input.messages.push_back({{"role", "user"}, {"content", marks + text}});
  return run_chat(context, reply, in);
}

}  // namespace ktx::server

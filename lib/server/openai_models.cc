// GET endpoints about the server: models, properties, tokens.
#include <fmt/format.h>

#include <filesystem>

#include "lib/server/answer_fields.h"
#include "lib/server/chat_prompt_input.h"
#include "lib/server/endpoints.h"
#include "lib/server/native_answer.h"
#include "lib/server/openai_format.h"
#include "lib/server/text_input.h"
#include "lib/text/utf8.h"

namespace ktx::server {
namespace {

// A text, or its bytes where they are a part of a character.
std::string piece_json(const text::Tokenizer& tokenizer, int32_t id) {
  const std::string_view piece = tokenizer.piece(id);
  if (text::valid_utf8_prefix(piece) == piece.size()) return dump(std::string(piece));
  Json bytes = Json::array();
  for (const char byte : piece) bytes.push_back(static_cast<uint8_t>(byte));
  return dump(bytes);
}

Json model_json(const ServedModel& model) {
  const plan::PlanFacts& facts = model.facts();
  Json json;
  json["id"] = model.id;
  json["object"] = "model";
  json["created"] = model.created;
  json["owned_by"] = "ktx";
  json["aliases"] = model.aliases;
  json["tags"] = Json::array();
  json["meta"] = {{"n_ctx", model.engine->ctx()}, {"n_ctx_train", facts.context_length},
                  {"n_vocab", facts.vocab_size},  {"n_embd", facts.hidden_size},
                  {"n_params", facts.parameters}, {"size", model.engine->memory().weight_bytes}};
  return json;
}

}  // namespace

void get_models(const ServerContext& context, const HttpRequest&, const HttpReplyPtr& reply) {
  const ServedModel& model = *context.model;
  // llama.cpp's list beside OpenAI's.
  const Json listed = {{"name", model.id},
                       {"model", model.id},
                       {"type", "model"},
                       {"capabilities", Json::array({"completion"})}};
  send_json(reply, {{"object", "list"},
                    {"data", Json::array({model_json(model)})},
                    {"models", Json::array({listed})}});
}

void get_model(const ServerContext& context, const HttpRequest& request,
               const HttpReplyPtr& reply) {
  const std::string name = request.path.substr(std::string("/v1/models/").size());
  // Requests may name any model, but only this one can be queried.
  const ServedModel& model = *context.model;
  if (!model.is_called(name)) {
    return send_error(
        *reply,
        {404, fmt::format("the model '{}' does not exist; this server has '{}'", name, model.id),
         "model", "model_not_found"});
  }
  send_json(reply, model_json(model));
}

void get_props(const ServerContext& context, const HttpRequest&, const HttpReplyPtr& reply) {
  const ServedModel& model = *context.model;
  const plan::PlanChatTemplate& strings = model.engine->plan().chat_template;
  AnswerFields fields;
  fields.sampling = model.sampling;
  fields.max_tokens = model.max_tokens;
  Json params = generation_settings(model, fields);
  // Another number for each request, unless --seed says one.
  params["seed"] = model.seed ? Json(*model.seed) : Json(-1);
  Json json;
  json["default_generation_settings"] = {{"n_ctx", model.scheduler->capacity()},
                                         {"params", std::move(params)}};
  json["total_slots"] = model.engine->max_batch();
  json["model_alias"] = model.id;
  json["model_path"] = std::filesystem::path(model.path).filename().string();
  json["modalities"] = {{"vision", false}, {"audio", false}};
  json["chat_template"] = model.chat_template ? model.chat_template->source() : "";
  json["bos_token"] = strings.bos;
  json["eos_token"] = strings.eos;
  json["endpoint_slots"] = context.show_slots;
  json["endpoint_metrics"] = true;
  json["is_sleeping"] = false;
  json["tool_format"] = text::format_name(model.tool_format);
  json["reasoning"] = model.reasoning.has_value();
  json["build_info"] = "ktx " KTX_VERSION;
  send_json(reply, json);
}

void post_tokenize(const ServerContext& context, const HttpRequest& request,
                   const HttpReplyPtr& reply) {
  Json body;
  if (const auto error = parse_body(request.body, body)) return send_error(*reply, *error);
  FieldReader in(body);
  const std::string content = in.text("content", in.text("prompt"));
  const bool special = in.flag("add_special", false);
  const bool pieces = in.flag("with_pieces", false);
  if (in.error()) return send_error(*reply, *in.error());
  if (const auto error = check_size(*context.model, "content", content)) {
    return send_error(*reply, *error);
  }
  const text::Tokenizer& tokenizer = *context.model->tokenizer;
  const std::vector<int32_t> ids = special ? tokenizer.encode_prompt(content)
                                           : tokenizer.encode(content, {.parse_special = true});
  // Written as it is found: a million values of the JSON library take 100 bytes and more each.
  std::string answer = R"({"tokens":[)";
  for (size_t i = 0; i < ids.size(); ++i) {
    if (i > 0) answer += ',';
    if (pieces) {
      answer += fmt::format(R"({{"id":{},"piece":{}}})", ids[i], piece_json(tokenizer, ids[i]));
    } else {
      answer += std::to_string(ids[i]);
    }
  }
  answer += "]}";
  reply->send(200, "application/json", std::move(answer));
}

void post_detokenize(const ServerContext& context, const HttpRequest& request,
                     const HttpReplyPtr& reply) {
  Json body;
  if (const auto error = parse_body(request.body, body)) return send_error(*reply, *error);
  FieldReader in(body);
  const Json* tokens = in.list("tokens");
  if (in.error()) return send_error(*reply, *in.error());
  const text::Tokenizer& tokenizer = *context.model->tokenizer;
  std::vector<int32_t> ids;
  for (const Json& item : tokens != nullptr ? *tokens : Json::array()) {
    const double id = item.is_number() ? item.get<double>() : -1;
    if (!(id >= 0 && id < tokenizer.size())) {
      return send_error(
          *reply,
          {400, fmt::format("'tokens' has {}, expected 0 to {}", show(item), tokenizer.size() - 1),
           "tokens", ""});
    }
    ids.push_back(static_cast<int32_t>(id));
  }
  send_json(reply, {{"content", tokenizer.decode(ids, true)}});
}

void post_apply_template(const ServerContext& context, const HttpRequest& request,
                         const HttpReplyPtr& reply) {
  Json body;
  if (const auto error = parse_body(request.body, body)) return send_error(*reply, *error);
  FieldReader in(body);
  const Json* messages = in.list("messages");
  if (messages == nullptr) in.fail("messages", "'messages' is missing");
  const Json* tools = in.list("tools");
  ChatInput input;
  if (const Json* extra = in.object("chat_template_kwargs")) input.extra = *extra;
  read_continuation(in, input);
  apply_reasoning_default(*context.model, input);
  if (in.error()) return send_error(*reply, *in.error());
  if (const auto error = read_messages(*messages, input.messages))
    return send_error(*reply, *error);
  if (tools != nullptr) {
    if (const auto error = read_tools(*tools, ToolForm::Nested, input.tools)) {
      return send_error(*reply, *error);
    }
  }
  ChatPrompt prompt;
  if (const auto error = make_prompt(*context.model, input, prompt)) {
    return send_error(*reply, *error);
  }
  send_json(reply, {{"prompt", prompt.text}, {"tokens", prompt.ids.size()}});
}

}  // namespace ktx::server

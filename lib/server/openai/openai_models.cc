// Endpoints about the models and their texts: list, properties, tokens, templates.
#include <fmt/format.h>

#include <chrono>

#include "lib/server/anthropic/anthropic_error.h"
#include "lib/server/endpoints.h"
#include "lib/server/ollama/ollama_format.h"
#include "lib/server/openai/openai_format.h"
#include "lib/server/request/chat_prompt_input.h"
#include "lib/server/request/client_tools.h"
#include "lib/server/request/reasoning_fields.h"
#include "lib/server/request/text_input.h"
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

// For a plan that cannot be read: what is known of its file.
Json model_json(ModelStore& models, const ModelStatus& status) {
  Json json;
  json["id"] = status.plan.name;
  json["object"] = "model";
  json["created"] = status.model ? status.model->created : status.plan.modified;
  json["owned_by"] = "ktx";
  json["aliases"] = status.aliases;
  json["tags"] = status.tags;
  json["status"] = {{"value", name(status.state)}};
  std::string error = status.error;
  if (const auto summary = summary_of(models, status)) {
    const plan::PlanFacts& facts = summary.value()->facts;
    json["architecture"] = {{"input_modalities", facts.takes_images ? Json::array({"text", "image"})
                                                                    : Json::array({"text"})},
                            {"output_modalities", Json::array({"text"})}};
    const int64_t ctx = status.model ? status.model->engine->ctx() : facts.default_ctx;
    json["meta"] = {{"n_ctx", ctx},
                    {"n_ctx_train", facts.context_length},
                    {"n_vocab", facts.vocab_size},
                    {"n_embd", facts.hidden_size},
                    {"n_params", facts.parameters},
                    {"size", summary.value()->weight_bytes}};
  } else {
    error = summary.error().message;
  }
  if (!error.empty()) {
    json["status"]["failed"] = true;
    json["status"]["error"] = error;
  }
  return json;
}

// An adapter, which requests name as a model.
Json adapter_json(const runtime::LoraInfo& adapter, const ModelStatus& status) {
  return {{"id", adapter.name},
          {"object", "model"},
          {"created", status.model->created},
          {"owned_by", "ktx"},
          {"parent", status.plan.name}};
}

// The same in Anthropic's form.
Json anthropic_model(const ModelStatus& status) {
  const int64_t created = status.model ? status.model->created : status.plan.modified;
  const auto time = std::chrono::system_clock::time_point(std::chrono::seconds(created));
  return {{"type", "model"},
          {"id", status.plan.name},
          {"display_name", status.plan.name},
          {"created_at", rfc3339(time)}};
}

Json anthropic_list(const std::vector<ModelStatus>& models) {
  Json data = Json::array();
  for (const ModelStatus& status : models) data.push_back(anthropic_model(status));
  const Json first = data.empty() ? Json() : data.front()["id"];
  const Json last = data.empty() ? Json() : data.back()["id"];
  return {{"data", data}, {"has_more", false}, {"first_id", first}, {"last_id", last}};
}

}  // namespace

ApiStatus get_models(const ServerContext& context, const HttpRequest& request,
                     const HttpReplyPtr& reply) {
  const std::vector<ModelStatus> models =
      context.models->list(request.query_value("reload") == "1");
  if (takes_anthropic_errors(request)) {
    send_json(reply, anthropic_list(models));
    return {};
  }
  Json data = Json::array(), listed = Json::array();
  for (const ModelStatus& status : models) {
    data.push_back(model_json(*context.models, status));
    if (status.model) {
      for (const runtime::LoraInfo& adapter : status.model->adapters.list()) {
        data.push_back(adapter_json(adapter, status));
      }
    }
    // llama.cpp's list beside OpenAI's.
    Json capabilities = Json::array({"completion"});
    const auto summary = summary_of(*context.models, status);
    if (summary && summary.value()->facts.takes_images) capabilities.push_back("multimodal");
    listed.push_back({{"name", status.plan.name},
                      {"model", status.plan.name},
                      {"type", "model"},
                      {"capabilities", std::move(capabilities)}});
  }
  send_json(reply, {{"object", "list"}, {"data", data}, {"models", listed}});
  return {};
}

ApiStatus get_model(const ServerContext& context, const HttpRequest& request,
                    const HttpReplyPtr& reply) {
  const std::string name = request.path.substr(std::string("/v1/models/").size());
  // Requests may name any model where there is one, but only this one can be queried.
  const auto status =
      context.models->knows(name) ? context.models->status(name) : std::optional<ModelStatus>();
  if (!status) {
    return ApiError{
        404,
        fmt::format("the model '{}' does not exist; GET /v1/models lists those of this server",
                    name.substr(0, 200)),
        "model", "model_not_found"};
  }
  send_json(reply, takes_anthropic_errors(request) ? anthropic_model(*status)
                                                   : model_json(*context.models, *status));
  return {};
}

ApiStatus get_props(const ServerContext& context, const HttpRequest& request,
                    const HttpReplyPtr& reply) {
  const std::string asked = request.query_value("model");
  const ModelStoreOptions& options = context.models->options();
  Json json = Json::object();
  if (asked.empty() && context.models->several()) {
    json["role"] = "router";
    json["max_instances"] = options.most_loaded;
    json["models_autoload"] = options.load_on_demand;
    json["model_alias"] = "ktx";
  } else {
    const auto status = context.models->status(asked);
    if (!status) {
      return ApiError{404, fmt::format("the model '{}' does not exist", asked), "model",
                      "model_not_found"};
    }
    // A model that was never loaded has only its name and its state.
    if (!status->props.empty()) json = Json::parse(status->props);
    json["model_alias"] = status->plan.name;
    json["is_sleeping"] = status->state == ModelState::Sleeping;
    json["status"] = {{"value", name(status->state)}};
  }
  json["endpoint_slots"] = context.show_slots;
  json["allow_pull"] = context.fetches != nullptr && context.may_change.ok();
  json["endpoint_metrics"] = true;
  json["build_info"] = "ktx " KTX_VERSION;
  send_json(reply, json);
  return {};
}

ApiStatus post_tokenize(const ServerContext& context, const HttpRequest& request,
                        const HttpReplyPtr& reply) {
  const Json body = KTX_TRY(parse_body(request.body));
  FieldReader in(body);
  const std::string content = in.text("content", in.text("prompt"));
  const bool special = in.flag("add_special", false);
  const bool controls = in.flag("parse_special", true);
  const bool pieces = in.flag("with_pieces", false);
  KTX_TRY(in.status());
  KTX_TRY(check_size(*context.model, "content", content.size()));
  const text::Tokenizer& tokenizer = *context.model->tokenizer;
  std::vector<int32_t> ids =
      special && controls
          ? tokenizer.encode_prompt(content)
          : tokenizer.encode(content, {.parse_special = controls,
                                       .add_bos = special && tokenizer.data().add_bos});
  // As texts for embeddings have it.
  if (special && tokenizer.data().add_eos) ids.push_back(tokenizer.eos());
  // Written as it is found: a million values of the JSON library take 100 bytes and more each. A
  // token with its piece is written once, however often it comes.
  std::vector<std::string> written(pieces ? static_cast<size_t>(tokenizer.size()) : 0);
  std::string answer = R"({"tokens":[)";
  for (const int32_t id : ids) {
    if (!pieces) {
      fmt::format_to(std::back_inserter(answer), "{},", id);
      continue;
    }
    std::string& token = written[static_cast<size_t>(id)];
    if (token.empty()) {
      token = fmt::format(R"({{"id":{},"piece":{}}},)", id, piece_json(tokenizer, id));
    }
    answer += token;
  }
  if (!ids.empty()) answer.pop_back();  // the last comma
  answer += "]}";
  reply->send(200, "application/json", std::move(answer));
  return {};
}

ApiStatus post_detokenize(const ServerContext& context, const HttpRequest& request,
                          const HttpReplyPtr& reply) {
  const Json body = KTX_TRY(parse_body(request.body));
  FieldReader in(body);
  const Json* tokens = in.list("tokens");
  KTX_TRY(in.status());
  const text::Tokenizer& tokenizer = *context.model->tokenizer;
  std::vector<int32_t> ids;
  for (const Json& item : tokens != nullptr ? *tokens : Json::array()) {
    const double id = item.is_number() ? item.get<double>() : -1;
    if (!(id >= 0 && id < tokenizer.size())) {
      return ApiError{
          400, fmt::format("'tokens' has {}, expected 0 to {}", show(item), tokenizer.size() - 1),
          "tokens", ""};
    }
    ids.push_back(static_cast<int32_t>(id));
  }
  send_json(reply, {{"content", tokenizer.decode(ids, true)}});
  return {};
}

ApiStatus post_apply_template(const ServerContext& context, const HttpRequest& request,
                              const HttpReplyPtr& reply) {
  const Json body = KTX_TRY(parse_body(request.body));
  FieldReader in(body);
  const Json* messages = in.list("messages");
  if (messages == nullptr) in.fail("messages", "'messages' is missing");
  const Json* tools = in.list("tools");
  ChatInput input = input_for(*context.model);
  ReasoningLimit limit;
  read_reasoning_fields(*context.model, in, input, limit);
  read_continuation(in, input);
  apply_reasoning_default(*context.model, input);
  KTX_TRY(in.status());
  input.messages = KTX_TRY(read_messages(*messages, input.notes, input.seen()));
  input.tools = KTX_TRY(offered_tools(tools, ToolForm::Nested)).functions;
  send_notes(input.notes, *reply);
  context.asker->counts_only = true;
  const ChatPrompt prompt = KTX_TRY(make_prompt(*context.model, input, *context.asker));
  send_json(reply, {{"prompt", prompt.text}, {"tokens", prompt.ids.size()}});
  return {};
}

}  // namespace ktx::server

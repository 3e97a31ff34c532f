// Ollama's endpoints about models: version, tags, ps, show, embed.
#include <fmt/format.h>

#include <functional>

#include "lib/server/endpoints.h"
#include "lib/server/models/no_download.h"
#include "lib/server/ollama/ollama_format.h"

namespace ktx::server {
namespace {

// Clients compare it with the version that brought a feature.
constexpr const char* kOllamaVersion = "0.12.0";

std::string at(int64_t seconds) {
  return rfc3339(std::chrono::system_clock::time_point(std::chrono::seconds(seconds)));
}

// Nothing of a plan that cannot be read.
std::optional<Json> listed(ModelStore& models, const ModelStatus& status) {
  const auto summary = summary_of(models, status);
  if (!summary) return std::nullopt;
  Json json;
  json["name"] = ollama_name(status.plan.name);
  json["model"] = ollama_name(status.plan.name);
  json["modified_at"] = at(status.model ? status.model->created : status.plan.modified);
  json["size"] = summary.value()->file_bytes;
  json["digest"] = summary.value()->digest;
  json["details"] = ollama_details(*summary.value(), status.model.get());
  return json;
}

Json capabilities(const PlanSummary& summary, const ServedModel* model) {
  Json list = Json::array({"completion", "embedding"});
  if (summary.tool_format != text::ToolCallFormat::None) list.push_back("tools");
  if (summary.facts.takes_images) list.push_back("vision");
  if (model != nullptr && model->reasons()) list.push_back("thinking");
  return list;
}

ApiError no_model(const std::string& name) {
  return {404, fmt::format("model '{}' not found", name.substr(0, 200)), "model",
          "model_not_found"};
}

// The model that a request names; older clients say `name`.
ApiResult<std::string> named_model(const HttpRequest& request) {
  const Json body = KTX_TRY(parse_body(request.body));
  FieldReader in(body);
  std::string name = in.text("model", in.text("name"));
  KTX_TRY(in.status());
  return name;
}

}  // namespace

ApiStatus get_ollama_version(const ServerContext&, const HttpRequest&, const HttpReplyPtr& reply) {
  send_json(reply, {{"version", kOllamaVersion}});
  return {};
}

ApiStatus get_ollama_tags(const ServerContext& context, const HttpRequest&,
                          const HttpReplyPtr& reply) {
  Json list = Json::array();
  for (const ModelStatus& status : context.models->list()) {
    if (auto json = listed(*context.models, status)) list.push_back(std::move(*json));
  }
  send_json(reply, {{"models", std::move(list)}});
  return {};
}

ApiStatus get_ollama_ps(const ServerContext& context, const HttpRequest&,
                        const HttpReplyPtr& reply) {
  Json list = Json::array();
  for (const ModelStatus& status : context.models->list()) {
    if (!status.model) continue;
    auto json = listed(*context.models, status);
    if (!json) continue;
    (*json)["expires_at"] = status.sleeps_at ? rfc3339(*status.sleeps_at) : "9999-12-31T23:59:59Z";
    (*json)["size_vram"] = 0;
    (*json)["context_length"] = status.model->engine->ctx();
    list.push_back(std::move(*json));
  }
  send_json(reply, {{"models", std::move(list)}});
  return {};
}

ApiStatus post_ollama_show(const ServerContext& context, const HttpRequest& request,
                           const HttpReplyPtr& reply) {
  const std::string name = KTX_TRY(named_model(request));
  const auto status = context.models->status(name);
  if (!status) return no_model(name);
  const auto summary = summary_of(*context.models, *status);
  if (!summary) {
    return ApiError{500, summary.error().message, "model", "model_not_loadable"};
  }
  const ServedModel* model = status->model.get();
  const plan::PlanFacts& facts = summary.value()->facts;
  const std::string arch = facts.architecture;
  const std::string source = model == nullptr       ? summary.value()->chat_template
                             : model->chat_template ? model->chat_template->source()
                                                    : "";
  Json json;
  json["license"] = "";
  json["modelfile"] = fmt::format("FROM {}\n", status->plan.name);
  json["parameters"] = model != nullptr
                           ? fmt::format("temperature {}\n", model->sampling.temperature)
                           : std::string();
  json["template"] = source;
  json["details"] = ollama_details(*summary.value(), model);
  json["model_info"] = {
      {"general.architecture", arch},
      {"general.name", facts.name},
      {"general.parameter_count", facts.parameters},
      {arch + ".context_length", model != nullptr ? model->engine->ctx() : facts.default_ctx},
      {arch + ".embedding_length", facts.hidden_size},
      {arch + ".block_count", facts.layers},
      {arch + ".vocab_size", facts.vocab_size}};
  json["capabilities"] = capabilities(*summary.value(), model);
  json["modified_at"] = at(model != nullptr ? model->created : status->plan.modified);
  send_json(reply, json);
  return {};
}

ApiStatus post_ollama_copy(const ServerContext& context, const HttpRequest& request,
                           const HttpReplyPtr& reply) {
  const Json body = KTX_TRY(parse_body(request.body));
  FieldReader in(body);
  const std::string from = in.text("source"), to = in.text("destination");
  KTX_TRY(in.status());
  KTX_TRY(context.may_edit);
  KTX_TRY(context.models->copy(from, to));
  reply->send(200, "", "");
  return {};
}

ApiStatus delete_ollama_model(const ServerContext& context, const HttpRequest& request,
                              const HttpReplyPtr& reply) {
  const std::string name = KTX_TRY(named_model(request));
  KTX_TRY(context.may_edit);
  KTX_TRY(context.models->remove(name));
  reply->send(200, "", "");
  return {};
}

ApiStatus post_ollama_push(const ServerContext&, const HttpRequest&, const HttpReplyPtr&) {
  return ApiError{501,
                  "this server makes no models and sends none anywhere: ktx-compile makes a plan "
                  "of a GGUF",
                  "", ""};
}

}  // namespace ktx::server

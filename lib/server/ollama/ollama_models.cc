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
  if (model != nullptr && model->reasons()) list.push_back("thinking");
  return list;
}

ApiError no_model(const std::string& name) {
  return {404, fmt::format("model '{}' not found", name.substr(0, 200)), "model",
          "model_not_found"};
}

// The fields of a request that `read` reads; false: a mistake was the answer.
bool read_ollama_fields(const HttpRequest& request, HttpReply& reply,
                        const std::function<void(FieldReader&)>& read) {
  Json body;
  std::optional<ApiError> error = parse_body(request.body, body);
  if (!error) {
    FieldReader in(body);
    read(in);
    error = in.error();
  }
  if (error) send_ollama_error(reply, *error);
  return !error;
}

// The model that a request names; older clients say `name`.
std::optional<std::string> named_model(const HttpRequest& request, HttpReply& reply) {
  std::string name;
  const auto read = [&](FieldReader& in) { name = in.text("model", in.text("name")); };
  if (!read_ollama_fields(request, reply, read)) return std::nullopt;
  return name;
}

}  // namespace

void get_ollama_version(const ServerContext&, const HttpRequest&, const HttpReplyPtr& reply) {
  send_json(reply, {{"version", kOllamaVersion}});
}

void get_ollama_tags(const ServerContext& context, const HttpRequest&, const HttpReplyPtr& reply) {
  Json list = Json::array();
  for (const ModelStatus& status : context.models->list()) {
    if (auto json = listed(*context.models, status)) list.push_back(std::move(*json));
  }
  send_json(reply, {{"models", std::move(list)}});
}

void get_ollama_ps(const ServerContext& context, const HttpRequest&, const HttpReplyPtr& reply) {
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
}

void post_ollama_show(const ServerContext& context, const HttpRequest& request,
                      const HttpReplyPtr& reply) {
  const auto name = named_model(request, *reply);
  if (!name) return;
  const auto status = context.models->status(*name);
  if (!status) return send_ollama_error(*reply, no_model(*name));
  const auto summary = summary_of(*context.models, *status);
  if (!summary) {
    return send_ollama_error(*reply, {500, summary.error().message, "model", "model_not_loadable"});
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
}

void post_ollama_copy(const ServerContext& context, const HttpRequest& request,
                      const HttpReplyPtr& reply) {
  std::string from, to;
  const auto read = [&](FieldReader& in) {
    from = in.text("source");
    to = in.text("destination");
  };
  if (!read_ollama_fields(request, *reply, read)) return;
  if (context.no_edits) return send_ollama_error(*reply, *context.no_edits);
  if (const auto error = context.models->copy(from, to)) return send_ollama_error(*reply, *error);
  reply->send(200, "", "");
}

void delete_ollama_model(const ServerContext& context, const HttpRequest& request,
                         const HttpReplyPtr& reply) {
  const auto name = named_model(request, *reply);
  if (!name) return;
  if (context.no_edits) return send_ollama_error(*reply, *context.no_edits);
  if (const auto error = context.models->remove(*name)) return send_ollama_error(*reply, *error);
  reply->send(200, "", "");
}

// There is nothing to download: a model that is here is up to date, as with Ollama.
void post_ollama_pull(const ServerContext& context, const HttpRequest& request,
                      const HttpReplyPtr& reply) {
  const auto name = named_model(request, *reply);
  if (!name) return;
  if (!context.models->knows(*name)) return send_ollama_error(*reply, no_download(*name));
  reply->send(200, "application/x-ndjson", dump(Json{{"status", "success"}}) + "\n");
}

void post_ollama_push(const ServerContext&, const HttpRequest&, const HttpReplyPtr& reply) {
  send_ollama_error(*reply, {501,
                             "this server makes no models and sends none anywhere: ktx-compile "
                             "makes a plan of a GGUF",
                             "", ""});
}

}  // namespace ktx::server

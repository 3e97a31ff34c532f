// Ollama's endpoints about models: version, tags, ps, show, embed.
#include <fmt/format.h>

#include "lib/server/endpoints.h"
#include "lib/server/ollama_format.h"

namespace ktx::server {
namespace {

// Clients compare it with the version that brought a feature.
constexpr const char* kOllamaVersion = "0.12.0";

Json listed(const ServedModel& model) {
  Json json;
  json["name"] = ollama_name(model);
  json["model"] = ollama_name(model);
  json["modified_at"] =
      rfc3339(std::chrono::system_clock::time_point(std::chrono::seconds(model.created)));
  json["size"] = model.engine->plan().file_bytes;
  json["digest"] = ollama_digest(model);
  json["details"] = ollama_details(model);
  return json;
}

Json capabilities(const ServedModel& model) {
  Json list = Json::array({"completion", "embedding"});
  if (model.tool_format != text::ToolCallFormat::None) list.push_back("tools");
  if (model.reasons()) list.push_back("thinking");
  return list;
}

}  // namespace

void get_ollama_version(const ServerContext&, const HttpRequest&, const HttpReplyPtr& reply) {
  send_json(reply, {{"version", kOllamaVersion}});
}

void get_ollama_tags(const ServerContext& context, const HttpRequest&, const HttpReplyPtr& reply) {
  send_json(reply, {{"models", Json::array({listed(*context.model)})}});
}

void get_ollama_ps(const ServerContext& context, const HttpRequest&, const HttpReplyPtr& reply) {
  Json json = listed(*context.model);
  json["expires_at"] = "9999-12-31T23:59:59Z";
  json["size_vram"] = 0;
  json["context_length"] = context.model->engine->ctx();
  send_json(reply, {{"models", Json::array({json})}});
}

void post_ollama_show(const ServerContext& context, const HttpRequest& request,
                      const HttpReplyPtr& reply) {
  const ServedModel& model = *context.model;
  Json body;
  if (const auto error = parse_body(request.body, body)) return send_ollama_error(*reply, *error);
  FieldReader in(body);
  in.text("model", in.text("name"));  // any is this one
  if (in.error()) return send_ollama_error(*reply, *in.error());
  const plan::PlanFacts& facts = model.facts();
  const std::string arch = facts.architecture;
  Json json;
  json["license"] = "";
  json["modelfile"] = fmt::format("FROM {}\n", model.id);
  json["parameters"] = fmt::format("temperature {}\n", model.sampling.temperature);
  json["template"] = model.chat_template ? model.chat_template->source() : "";
  json["details"] = ollama_details(model);
  json["model_info"] = {{"general.architecture", arch},
                        {"general.name", facts.name},
                        {"general.parameter_count", facts.parameters},
                        {arch + ".context_length", model.engine->ctx()},
                        {arch + ".embedding_length", facts.hidden_size},
                        {arch + ".block_count", facts.layers},
                        {arch + ".vocab_size", facts.vocab_size}};
  json["capabilities"] = capabilities(model);
  json["modified_at"] = listed(model)["modified_at"];
  send_json(reply, json);
}

}  // namespace ktx::server

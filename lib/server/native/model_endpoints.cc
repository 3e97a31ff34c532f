// Endpoints that load, unload and delete models, as llama.cpp's server in its router mode.
#include <fmt/format.h>

#include "lib/server/answer/answer_job.h"
#include "lib/server/endpoints.h"
#include "lib/server/http/json_fields.h"
#include "lib/server/models/no_download.h"

namespace ktx::server {
namespace {

// The model that the body names, given to `work`.
void with_name(const HttpRequest& request, const HttpReplyPtr& reply,
               const std::function<std::optional<ApiError>(const std::string&)>& work) {
  Json body;
  if (const auto error = parse_body(request.body, body)) return send_error(*reply, *error);
  FieldReader in(body);
  const std::string name = in.text("model");
  if (name.empty()) in.fail("model", "'model' is missing");
  if (in.error()) return send_error(*reply, *in.error());
  if (const auto error = work(name)) return send_error(*reply, *error);
  send_json(reply, {{"success", true}});
}

}  // namespace

void post_model_load(const ServerContext& context, const HttpRequest& request,
                     const HttpReplyPtr& reply) {
  with_name(request, reply, [&](const std::string& name) { return context.models->load(name); });
}

void post_model_unload(const ServerContext& context, const HttpRequest& request,
                       const HttpReplyPtr& reply) {
  with_name(request, reply, [&](const std::string& name) { return context.models->unload(name); });
}

void post_model(const ServerContext&, const HttpRequest& request, const HttpReplyPtr& reply) {
  with_name(request, reply, [](const std::string& name) { return no_download(name); });
}

void delete_model(const ServerContext& context, const HttpRequest& request,
                  const HttpReplyPtr& reply) {
  const std::string name = request.query_value("model");
  if (name.empty()) {
    return send_error(*reply, {400, "'model' is missing: DELETE /models?model=NAME", "model", ""});
  }
  if (context.no_edits) return send_error(*reply, *context.no_edits);
  if (const auto error = context.models->remove(name)) return send_error(*reply, *error);
  send_json(reply, {{"success", true}});
}

ApiError no_download(const std::string& name) {
  return {
      501,
      fmt::format("this server downloads nothing: make a plan of the GGUF of '{}' "
                  "(ktx-compile model.gguf -o NAME.ktxplan) and put it into the server's folder",
                  name.substr(0, 200)),
      "model", "no_download"};
}

}  // namespace ktx::server

// Endpoints that load, unload and delete models, as llama.cpp's server in its router mode.
#include <fmt/format.h>

#include "lib/server/answer/answer_job.h"
#include "lib/server/endpoints.h"
#include "lib/server/http/json_fields.h"
#include "lib/server/models/no_download.h"

namespace ktx::server {
namespace {

// The model that the body names, given to `work`.
ApiStatus with_name(const HttpRequest& request, const HttpReplyPtr& reply,
                    const std::function<ApiStatus(const std::string&)>& work) {
  const Json body = KTX_TRY(parse_body(request.body));
  FieldReader in(body);
  const std::string name = in.text("model");
  if (name.empty()) in.fail("model", "'model' is missing");
  KTX_TRY(in.status());
  KTX_TRY(work(name));
  send_json(reply, {{"success", true}});
  return {};
}

}  // namespace

ApiStatus post_model_load(const ServerContext& context, const HttpRequest& request,
                          const HttpReplyPtr& reply) {
  return with_name(request, reply,
                   [&](const std::string& name) { return context.models->load(name); });
}

ApiStatus post_model_unload(const ServerContext& context, const HttpRequest& request,
                            const HttpReplyPtr& reply) {
  return with_name(request, reply,
                   [&](const std::string& name) { return context.models->unload(name); });
}

ApiStatus post_model(const ServerContext&, const HttpRequest& request, const HttpReplyPtr& reply) {
  return with_name(request, reply, [](const std::string& name) { return no_download(name); });
}

ApiStatus delete_model(const ServerContext& context, const HttpRequest& request,
                       const HttpReplyPtr& reply) {
  const std::string name = request.query_value("model");
  if (name.empty()) {
    return ApiError{400, "'model' is missing: DELETE /models?model=NAME", "model", ""};
  }
  KTX_TRY(context.may_edit);
  KTX_TRY(context.models->remove(name));
  send_json(reply, {{"success", true}});
  return {};
}

ApiError no_download(const std::string& name) {
  return {
      501,
      fmt::format("this server downloads nothing here: make a plan of the GGUF of '{}' "
                  "(ktx-compile model.gguf -o NAME.ktxplan) and put it into the server's folder; "
                  "with --allow-pull, POST /api/pull fetches models of a hub",
                  name.substr(0, 200)),
      "model", "no_download"};
}

}  // namespace ktx::server

// GET and POST /lora-adapters, as llama.cpp's server has them.
#include <filesystem>

#include "lib/server/endpoints.h"
#include "lib/server/request/lora_field.h"

namespace ktx::server {

ApiStatus get_lora_adapters(const ServerContext& context, const HttpRequest&,
                            const HttpReplyPtr& reply) {
  const ServedAdapters& adapters = context.model->adapters;
  const std::vector<float> scales = adapters.scales();
  Json list = Json::array();
  for (size_t i = 0; i < scales.size(); ++i) {
    list.push_back({{"id", i},
                    {"name", adapters.list()[i].name},
                    {"path", std::filesystem::path(adapters.list()[i].path).filename().string()},
                    {"scale", decimal(scales[i])}});
  }
  send_json(reply, list);
  return {};
}

ApiStatus post_lora_adapters(const ServerContext& context, const HttpRequest& request,
                             const HttpReplyPtr& reply) {
  KTX_TRY(context.may_change);
  // Other bodies are objects, so this list is read as a field of one.
  const Json body = KTX_TRY(parse_body("{\"lora\":" + request.body + "}"));
  if (body.size() != 1)
    return ApiError{400, "the body is not a list of {\"id\", \"scale\"}", "", ""};
  FieldReader in(body);
  const auto choice = read_lora(*context.model, in);
  if (!choice) in.fail("lora", "the body is null, expected a list of {\"id\", \"scale\"}");
  KTX_TRY(in.status());
  std::vector<float> scales(context.model->adapters.list().size(), 0);
  for (const runtime::LoraUse& use : *choice) scales[static_cast<size_t>(use.adapter)] = use.scale;
  context.model->adapters.set_scales(std::move(scales));
  send_json(reply, {{"success", true}});
  return {};
}

}  // namespace ktx::server

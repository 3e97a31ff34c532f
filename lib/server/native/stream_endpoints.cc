// GET and DELETE /v1/stream, POST /v1/streams/lookup: streams that are kept (kept_streams.h).
#include <charconv>

#include "lib/server/answer/answer_job.h"
#include "lib/server/answer/kept_streams.h"
#include "lib/server/endpoints.h"
#include "lib/server/http/json_fields.h"

namespace ktx::server {
namespace {

constexpr size_t kMostNames = 1000;

ApiError no_name() {
  return {400, "'conv_id' is missing: /v1/stream?conv_id=ID", "conv_id", ""};
}

}  // namespace

ApiStatus get_stream(const ServerContext& context, const HttpRequest& request,
                     const HttpReplyPtr& reply) {
  const std::string name = request.query_value("conv_id");
  if (name.empty()) return no_name();
  const std::string text = request.query_value("from");
  int64_t from = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), from);
  if (!text.empty() && (error != std::errc() || end != text.data() + text.size() || from < 0)) {
    return ApiError{400, "'from' must be a number of bytes", "from", ""};
  }
  return context.streams->read(context.owner, name, from, reply);
}

ApiStatus delete_stream(const ServerContext& context, const HttpRequest& request,
                        const HttpReplyPtr& reply) {
  const std::string name = request.query_value("conv_id");
  if (name.empty()) return no_name();
  context.streams->drop(context.owner, name);
  reply->send(204, "", "");
  return {};
}

// Only of those that the client names: none is listed to who does not know it.
ApiStatus post_streams_lookup(const ServerContext& context, const HttpRequest& request,
                              const HttpReplyPtr& reply) {
  const Json body = KTX_TRY(parse_body(request.body));
  FieldReader in(body);
  const std::vector<std::string> names = in.texts("conversation_ids", kMostNames);
  KTX_TRY(in.status());
  Json list = Json::array();
  for (const KeptStreams::State& state : context.streams->find(context.owner, names)) {
    list.push_back({{"conversation_id", state.name},
                    {"is_done", state.ended},
                    {"total_bytes", state.bytes},
                    {"started_at", state.begun},
                    {"completed_at", state.ended_at}});
  }
  send_json(reply, list);
  return {};
}

}  // namespace ktx::server

#include "lib/server/anthropic/anthropic_error.h"

#include <algorithm>

#include "lib/server/answer/answer_job.h"

namespace ktx::server {
namespace {

struct AnthropicErrorRow {
  int status;
  std::string_view type;
};
constexpr AnthropicErrorRow kAnthropicErrors[] = {
    {401, "authentication_error"}, {403, "permission_error"}, {404, "not_found_error"},
    {408, "timeout_error"},        {409, "conflict_error"},   {413, "request_too_large"},
    {429, "rate_limit_error"},     {500, "api_error"},        {501, "api_error"},
    {504, "timeout_error"},        {529, "overloaded_error"},
};

std::string_view anthropic_error_type(int status) {
  const auto* row =
      std::find_if(std::begin(kAnthropicErrors), std::end(kAnthropicErrors),
                   [&](const AnthropicErrorRow& each) { return each.status == status; });
  return row == std::end(kAnthropicErrors) ? "invalid_request_error" : row->type;
}

}  // namespace

bool takes_anthropic_errors(const HttpRequest& request) {
  return request.path == "/v1/messages" || request.path.starts_with("/v1/messages/") ||
         !request.header("anthropic-version").empty();
}

int anthropic_status(int status) {
  return status == 503 ? 529 : status;
}

std::string anthropic_error(const ApiError& error, const std::string& request_id) {
  const nlohmann::ordered_json json = {
      {"type", "error"},
      {"error",
       {{"type", anthropic_error_type(anthropic_status(error.status))},
        {"message", error.message}}},
      {"request_id", request_id}};
  return dump(json);
}

void send_anthropic_error(HttpReply& reply, const ApiError& error, const std::string& request_id) {
  reply.send(anthropic_status(error.status), "application/json", anthropic_error(error, request_id),
             error_headers(error));
}

}  // namespace ktx::server

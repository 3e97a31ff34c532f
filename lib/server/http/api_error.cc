#include "lib/server/http/api_error.h"

#include <fmt/format.h>

#include "lib/text/exact_json.h"

namespace ktx::server {

ApiError bad_place(const std::string& where, const std::string& what) {
  return {400, fmt::format("'{}' {}", where, what), where, ""};
}

std::string_view error_type(int status) {
  switch (status) {
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 404:
      return "not_found_error";
    case 429:
      return "rate_limit_error";
    case 500:
      return "server_error";
    case 501:
      return "not_supported_error";
    case 503:
      return "unavailable_error";
    default:
      return "invalid_request_error";
  }
}

nlohmann::ordered_json to_json(const ApiError& error) {
  nlohmann::ordered_json inner;
  inner["message"] = error.message;
  inner["type"] = error_type(error.status);
  inner["param"] = nullptr;
  if (!error.param.empty()) inner["param"] = error.param;
  inner["code"] = nullptr;
  if (!error.code.empty()) inner["code"] = error.code;
  if (error.prompt_tokens > 0) {
    // llama.cpp's clients look at these, OpenAI's at the code.
    inner["type"] = "exceed_context_size_error";
    inner["n_prompt_tokens"] = error.prompt_tokens;
    inner["n_ctx"] = error.context_tokens;
  }
  nlohmann::ordered_json outer;
  outer["error"] = std::move(inner);
  return outer;
}

std::string dump(const nlohmann::ordered_json& json) {
  return text::json_text(json);
}

}  // namespace ktx::server

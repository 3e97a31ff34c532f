// An error of the client or of the server, in OpenAI's form:
//
//   {"error": {"message": "...", "type": "invalid_request_error", "param": "n", "code": null}}
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "lib/support/result.h"

namespace ktx::server {

struct ApiError {
  int status = 400;
  std::string message;
  std::string param;  // the field; "" for none
  std::string code;   // "" for none
  int retry_after_seconds = 0;
  std::string allow = "";  // the methods of the path, with 405
  // For a prompt that does not fit; 0: another error.
  int64_t prompt_tokens = 0, context_tokens = 0;
};

template <class T>
using ApiResult = Result<T, ApiError>;
using ApiStatus = ApiResult<void>;

// "'messages[2]' has no name", where `where` is that place of the request.
ApiError bad_place(const std::string& where, const std::string& what);

// "invalid_request_error" for 400, "authentication_error" for 401, ...
std::string_view error_type(int status);
nlohmann::ordered_json to_json(const ApiError& error);

// JSON text; bytes that are no UTF-8 become U+FFFD.
std::string dump(const nlohmann::ordered_json& json);

}  // namespace ktx::server

// Errors in Anthropic's form:
//
//   {"type": "error", "error": {"type": "overloaded_error", "message": "..."},
//    "request_id": "req_..."}
//
// Its clients know 529 for a server that has no place, where others say 503.
#pragma once

#include <string>

#include "lib/server/http/api_error.h"
#include "lib/server/http/http_server.h"

namespace ktx::server {

// Does its client read this form? All of /v1/messages, and what its clients ask for elsewhere
// (header anthropic-version).
bool takes_anthropic_errors(const HttpRequest& request);

int anthropic_status(int status);
std::string anthropic_error(const ApiError& error, const std::string& request_id);

void send_anthropic_error(HttpReply& reply, const ApiError& error, const std::string& request_id);

}  // namespace ktx::server

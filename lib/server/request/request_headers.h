// Lines at the begin of a system prompt that belong to the request and not to the conversation:
//
//   x-anthropic-billing-header: cc_version=2.1.332; cch=0f3e1;
//   You are a coding agent ...
//
// Some clients write them anew for each request, and a prompt that begins with another line shares
// no token with the one before: all of it would be computed again. The model is not shown them.
#pragma once

#include <string>
#include <string_view>

#include "lib/server/request/conversation_parts.h"

namespace ktx::server {

// `text` without the lines `x-NAME-NAME...: VALUE` that it begins with (names of headers in any
// case, with two hyphens at least: "x-axis: time" stays) and empty lines behind them. Where none
// is, and where an empty line stands first, the text as it is.
std::string without_request_headers(std::string_view text, Notes& notes);

}  // namespace ktx::server

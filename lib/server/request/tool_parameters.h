// What a parser of tool calls needs to know of the tools that a request offers.
#pragma once

#include <vector>

#include "lib/server/http/json_fields.h"
#include "lib/text/answers/tool_calls.h"

namespace ktx::server {

// `tools`: as read_tools() leaves them. Which parameters are texts follows from their schemas,
// through anyOf, oneOf, allOf and local `$ref`s.
std::vector<text::OfferedTool> offered_tools(const Json& tools);

}  // namespace ktx::server

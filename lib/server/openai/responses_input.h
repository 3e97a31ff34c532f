// The `input` of Responses as messages. What the assistant said and called in a turn stands in
// items of its own there, and in one message here:
//
//   reasoning, message, function_call, function_call, function_call_output, ...
//   {"role": "assistant", reasoning_content, content, tool_calls: 2}, {"role": "tool"}, ...
#pragma once

#include <optional>
#include <string>

#include "lib/server/request/chat_prompt_input.h"
#include "lib/server/request/client_tools.h"

namespace ktx::server {

// `instructions` become a system message in front. Tools that the items bring are added to
// `tools`, which has those of the request.
ApiStatus read_responses_input(const Json& given, const std::string& instructions, ChatInput& input,
                               RequestTools& tools);

}  // namespace ktx::server

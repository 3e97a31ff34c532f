// The messages of Anthropic's requests in our form: results of tools are messages of their own,
// thinking is reasoning_content.
#pragma once

#include <optional>

#include "lib/server/request/chat_prompt_input.h"
#include "lib/server/request/client_tools.h"

namespace ktx::server {

// `system`: null for none. Tools that the messages bring are added to `tools`.
ApiStatus read_anthropic_messages(const Json* system, const Json& list, ChatInput& input,
                                  RequestTools& tools);

}  // namespace ktx::server

// From a conversation to what the scheduler runs.
#pragma once

#include <vector>

#include "lib/server/answer/answer_fields.h"
#include "lib/server/request/chat_prompt_input.h"

namespace ktx::server {

// A spec for each choice, as make_specs() gives for a prompt: the conversation is rendered, and
// reasoning and tool calls will be split off the answers. A constrained answer begins at once: the
// reasoning of a model is switched off, unless the request says otherwise.
ApiResult<std::vector<AnswerSpec>> make_chat_specs(const ServerContext& context,
                                                   const AnswerFields& fields, ChatInput input);

}  // namespace ktx::server

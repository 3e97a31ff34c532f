// Which tools the model may call.
#pragma once

#include <optional>

#include "lib/server/answer/answer_fields.h"
#include "lib/server/request/chat_prompt_input.h"
#include "lib/server/request/client_tools.h"

namespace ktx::server {

// A tool_choice of any protocol: "auto" (or null), "none", "required" ("any"), also as
// {"type": ...}; one tool, {"type": "function", "function": {"name": n}}, {"type": "function",
// "name": n} or {"type": "tool", "name": n}; {"type": "allowed_tools", "mode": m, "tools":
// [...]}, which leaves the named tools (also with both in an "allowed_tools"). "none" drops the
// tools; a forced call is a constraint of the answer. `form`: how the request has its tools.
ApiStatus apply_tool_choice(const ServedModel& model, const Json* choice, ToolForm form,
                            Json& tools, Constraint& constraint);

// The tools of a request and its tool_choice, in the client's names, become those of `input`.
ApiStatus use_tools(const ServedModel& model, const Json* choice, ToolForm form,
                    const RequestTools& tools, ChatInput& input, Constraint& constraint);

}  // namespace ktx::server

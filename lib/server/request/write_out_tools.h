// Tools for chat templates that know none, or whose form of calls no parser reads
// (lib/text/answers/tools_as_text.h).
#pragma once

#include "lib/server/http/json_fields.h"
#include "lib/server/models/served_model.h"

namespace ktx::server {

// Whether a conversation has calls of tools, or their results.
bool has_tool_messages(const Json& messages);

// Where `model`'s template does not say them: tools become a part of the system message, and null;
// calls and results plain messages. `forced`: the answer is a call, as bare JSON.
void write_out_tools(const ServedModel& model, bool forced, Json& messages, Json& tools);

}  // namespace ktx::server

// Calls as items of Responses: function_call, custom_tool_call, local_shell_call, shell_call,
// apply_patch_call and tool_search_call, from the model's function calls and back.
#pragma once

#include <optional>
#include <string>

#include "lib/server/http/json_fields.h"
#include "lib/server/request/client_tools.h"

namespace ktx::server {

// The item before its arguments are there. `tool`: what was called, null for what was not offered.
Json begun_call_item(const ClientTool* tool, const std::string& name, const std::string& call_id);
// Gives it the arguments.
void complete_call_item(CallForm form, const std::string& arguments, Json& item);

// A call of the history as the model made it.
struct PastCall {
  std::string id, name, arguments;
};
// For a type whose row says Call. `where`: of the item in the request.
ApiStatus read_call_item(const Json& item, const std::string& where, PastCall& call);

// The text of an output that is neither a string nor a list of parts: what a shell printed, how a
// patch went.
std::string output_text(const Json& item);

}  // namespace ktx::server

// The tools of a request as functions that the model can call, and its calls as the client knows
// them: a tool in a namespace, a custom tool (one free text), a shell.
//
//   RequestTools tools = KTX_TRY(offered_tools(in.list("tools"), ToolForm::Flat));
//   client_tool(tools.clients, "mcp__git__log")->name   // "log", of the namespace "mcp__git"
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lib/server/request/conversation_parts.h"

namespace ktx::server {

inline constexpr size_t kMaxTools = 256;

// How a protocol writes a tool: {"type": "function", "function": {"name", "parameters"}},
// {"type": "function", "name", "parameters"} (Responses), {"name", "input_schema"} (Anthropic).
enum class ToolForm { Nested, Flat, Anthropic };
// The field with a tool's schema: "function.parameters".
std::string_view schema_field(ToolForm form);

// What a call of it is to the client. All but Function and Custom are of Responses alone.
enum class CallForm { Function, Custom, LocalShell, Shell, ApplyPatch, ToolSearch };

struct ClientTool {
  std::string shown;        // the function's name
  std::string name, space;  // the client's, and its namespace; "" for none
  CallForm form = CallForm::Function;
};

struct RequestTools {
  Json functions;                   // in the first form; null: none
  std::vector<ClientTool> clients;  // one for each of them
  Notes notes;
};

// Adds the tools of `list`, checked: a name, and a schema that is an object. Tools that a vendor's
// own server runs are left out with a note. `where`: of the list in the request.
ApiStatus read_tools(const Json& list, ToolForm form, const std::string& where,
                     RequestTools& tools);
// Those of a request's `tools`; null: none.
ApiResult<RequestTools> offered_tools(const Json* list, ToolForm form);

// The name of a tool in a namespace: "mcp__git" and "log" are "mcp__git__log".
std::string shown_name(const std::string& space, const std::string& name);
// The tool that the model means; null for one that was not offered. An inner name alone is enough
// where one tool has it.
const ClientTool* client_tool(const std::vector<ClientTool>& tools, std::string_view called);

// A tool_choice with the names that the model sees, and only functions in it.
Json shown_choice(const Json& choice, const RequestTools& tools);

// The text of a custom tool's call, from its arguments, and back.
std::string custom_input(const std::string& arguments);
std::string custom_arguments(const std::string& input);

}  // namespace ktx::server

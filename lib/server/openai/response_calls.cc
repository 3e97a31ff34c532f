#include "lib/server/openai/response_calls.h"

#include <fmt/format.h>

#include <algorithm>

#include "lib/server/openai/openai_format.h"

namespace ktx::server {
namespace {

struct CallItemRow {
  CallForm form;
  const char* type;
  const char* id;      // how its id begins
  const char* inside;  // the member with the call; its arguments as text for Function and Custom
  const char* name;    // of the function; null: the item has it
};
constexpr CallItemRow kCallItems[] = {
    {CallForm::Function, "function_call", "fc_", "arguments", nullptr},
    {CallForm::Custom, "custom_tool_call", "ctc_", "input", nullptr},
    {CallForm::LocalShell, "local_shell_call", "lsh_", "action", "local_shell"},
    {CallForm::Shell, "shell_call", "sh_", "action", "shell"},
    {CallForm::ApplyPatch, "apply_patch_call", "apc_", "operation", "apply_patch"},
    {CallForm::ToolSearch, "tool_search_call", "tsc_", "arguments", "tool_search"},
};
template <class Key>
const CallItemRow& row_where(Key CallItemRow::*member, const Key& value) {
  return *std::find_if(std::begin(kCallItems), std::end(kCallItems),
                       [&](const CallItemRow& row) { return row.*member == value; });
}

Json as_object(const std::string& arguments) {
  Json object = parse_nested(arguments);
  return object.is_object() ? object : Json::object();
}

// A command of a shell that models write as a text: what bash runs.
Json words(const Json& command) {
  if (command.is_string()) return Json::array({"bash", "-lc", command});
  return command.is_array() ? command : Json::array();
}

}  // namespace

Json begun_call_item(const ClientTool* tool, const std::string& name, const std::string& call_id) {
  const CallForm form = tool == nullptr ? CallForm::Function : tool->form;
  const CallItemRow& row = row_where(&CallItemRow::form, form);
  Json item = {{"type", row.type},
               {"id", new_id(row.id)},
               {"call_id", call_id.empty() ? new_id("call_") : call_id}};
  if (row.name == nullptr) item["name"] = tool == nullptr ? name : tool->name;
  if (tool != nullptr && !tool->space.empty()) item["namespace"] = tool->space;
  if (form == CallForm::ToolSearch) item["execution"] = "client";
  item[row.inside] = row.name == nullptr ? Json("") : Json::object();
  item["status"] = "in_progress";
  return item;
}

void complete_call_item(CallForm form, const std::string& arguments, Json& item) {
  const CallItemRow& row = row_where(&CallItemRow::form, form);
  Json& inside = item[row.inside];
  if (form == CallForm::Function) {
    inside = arguments;
  } else if (form == CallForm::Custom) {
    inside = custom_input(arguments);
  } else if (form == CallForm::ApplyPatch) {
    const Json given = as_object(arguments);
    const auto operation = given.find("operation");
    inside = operation != given.end() && operation->is_object() ? *operation : given;
  } else {
    inside = as_object(arguments);
  }
  if (form == CallForm::LocalShell) {
    inside["command"] = words(inside.contains("command") ? inside["command"] : Json());
    inside["type"] = "exec";
    if (!inside.contains("env")) inside["env"] = Json::object();
  } else if (form == CallForm::Shell && inside.contains("commands") &&
             inside["commands"].is_string()) {
    inside["commands"] = Json::array({Json(inside["commands"])});
  }
}

ApiStatus read_call_item(const Json& item, const std::string& where, PastCall& call) {
  const std::string type = string_or(item, "type", "");
  const auto* row = std::find_if(std::begin(kCallItems), std::end(kCallItems),
                                 [&](const CallItemRow& each) { return each.type == type; });
  call.id = string_or(item, "call_id", string_or(item, "id", ""));
  call.name = row->name != nullptr
                  ? row->name
                  : shown_name(string_or(item, "namespace", ""), string_or(item, "name", ""));
  if (call.name.empty()) return bad_place(where, "has no name");
  const auto found = item.find(row->inside);
  const Json inside = found == item.end() ? Json() : *found;
  if (row->form == CallForm::Custom) {
    call.arguments = custom_arguments(inside.is_string() ? inside.get<std::string>() : "");
  } else if (row->form == CallForm::ApplyPatch) {
    call.arguments = dump(Json{{"operation", inside}});
  } else if (inside.is_string()) {
    call.arguments = inside.get<std::string>();
  } else {
    Json object = inside.is_object() ? inside : Json::object();
    if (row->form == CallForm::LocalShell) object.erase("type");
    call.arguments = dump(object);
  }
  return {};
}

std::string output_text(const Json& item) {
  const auto output = item.find("output");
  std::string text;
  if (string_or(item, "type", "") == "apply_patch_call_output") {
    text = string_or(item, "status", "completed");
    const std::string said = string_or(item, "output", "");
    return said.empty() ? text : text + ": " + said;
  }
  if (output == item.end() || output->is_null()) return text;
  if (!output->is_array()) return output->is_string() ? output->get<std::string>() : dump(*output);
  for (const Json& part : *output) {
    text += string_or(part, "stdout", "") + string_or(part, "stderr", "");
    const auto outcome = part.is_object() ? part.find("outcome") : part.end();
    if (!part.is_object() || outcome == part.end() || !outcome->is_object()) continue;
    if (string_or(*outcome, "type", "") == "timeout") text += "\n[timed out]";
    const auto code = outcome->find("exit_code");
    if (code != outcome->end() && *code != 0) text += fmt::format("\n[exit code {}]", dump(*code));
  }
  return text;
}

}  // namespace ktx::server

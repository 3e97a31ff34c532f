#include "lib/server/request/client_tools.h"

#include <fmt/format.h>

#include <algorithm>

#include "lib/server/filters/lark_pattern.h"

namespace ktx::server {
namespace {

struct ToolFormRow {
  ToolForm form;
  Protocol protocol;
  bool nested;                // name and schema stand in "function", of a custom tool in "custom"
  std::string_view own_type;  // where none is given
  const char* schema;
  std::string_view schema_field;
};
constexpr ToolFormRow kToolForms[] = {
    {ToolForm::Nested, Protocol::Chat, true, "function", "parameters", "function.parameters"},
    {ToolForm::Flat, Protocol::Responses, false, "function", "parameters", "parameters"},
    {ToolForm::Anthropic, Protocol::Messages, false, "custom", "input_schema", "input_schema"},
};
const ToolFormRow& row_of(ToolForm form) {
  return *std::find_if(std::begin(kToolForms), std::end(kToolForms),
                       [&](const ToolFormRow& row) { return row.form == form; });
}

struct KnownTool {
  Protocol protocol;
  std::string_view type;
  CallForm form;
  const char* name;
  const char* description;
  const char* schema;
};
constexpr KnownTool kKnownTools[] = {
#define KTX_KNOWN_TOOL(protocol, type, form, name, description, schema) \
  {Protocol::protocol, type, CallForm::form, name, description, schema},
#include "lib/server/request/known_tools.def"
};

// A tool that is being read.
struct OneTool {
  const Json& from;
  const std::string where;
  const ToolFormRow& form;
  const std::string space = {};  // its namespace
};

ApiStatus add_tool(const OneTool& tool, const std::string& name, CallForm call,
                   const std::string& description, Json schema, RequestTools& out) {
  const std::string shown = shown_name(tool.space, name);
  // Found again by a search, or declared in each turn.
  for (const ClientTool& known : out.clients) {
    if (known.shown == shown) return {};
  }
  if (out.clients.size() == kMaxTools) {
    return bad_place(tool.where,
                     fmt::format("is one function too many, {} are possible", kMaxTools));
  }
  Json function;
  function["name"] = shown;
  function["description"] = description;
  function["parameters"] = std::move(schema);
  if (out.functions.is_null()) out.functions = Json::array();
  out.functions.push_back({{"type", "function"}, {"function", std::move(function)}});
  out.clients.push_back({shown, name, tool.space, call});
  return {};
}

// What describes the tool: itself, or its member `key` in the nested form.
const Json* described(const OneTool& tool, const char* key) {
  if (!tool.form.nested) return &tool.from;
  const auto found = tool.from.find(key);
  return found == tool.from.end() || !found->is_object() ? nullptr : &*found;
}

ApiStatus add_function(const OneTool& tool, RequestTools& out) {
  const Json* function = described(tool, "function");
  if (function == nullptr) {
    return bad_place(tool.where, "is no {\"type\": \"function\", \"function\": ...}");
  }
  const std::string at = tool.form.nested ? tool.where + ".function" : tool.where;
  const std::string name = string_or(*function, "name", "");
  if (name.empty()) return bad_place(at, "has no name");
  Json parameters = {{"type", "object"}, {"properties", Json::object()}};
  const auto schema = function->find(tool.form.schema);
  if (schema != function->end() && !schema->is_null()) {
    if (!schema->is_object()) {
      return bad_place(fmt::format("{}.{}", tool.where, tool.form.schema_field),
                       fmt::format("is {}, expected a JSON schema", show(*schema)));
    }
    parameters = *schema;
  }
  return add_tool(tool, name, CallForm::Function, string_or(*function, "description", ""),
                  std::move(parameters), out);
}

// One text, whose form the description gives; one that is regular binds a forced call too.
ApiStatus add_custom(const OneTool& tool, RequestTools& out) {
  const Json* custom = described(tool, "custom");
  if (custom == nullptr) {
    return bad_place(tool.where, "is no {\"type\": \"custom\", \"custom\": ...}");
  }
  const std::string name = string_or(*custom, "name", "");
  if (name.empty()) return bad_place(tool.where, "has no name");
  std::string description = string_or(*custom, "description", "");
  Json input = {{"type", "string"}};
  if (const auto format = custom->find("format"); format != custom->end() && format->is_object()) {
    const auto inner = format->find("grammar");
    const Json& grammar = inner != format->end() ? *inner : *format;
    const std::string syntax = string_or(grammar, "syntax", "");
    const std::string definition = string_or(grammar, "definition", "");
    if (!definition.empty()) {
      description +=
          fmt::format("\n\nThe input has the form of this {}:\n{}",
                      syntax == "regex" ? "regular expression" : syntax + " grammar", definition);
    }
    const std::optional<std::string> pattern = syntax == "regex"  ? definition
                                               : syntax == "lark" ? lark_pattern(definition)
                                                                  : std::nullopt;
    if (pattern) input["pattern"] = fmt::format("^(?:{})$", *pattern);
  }
  Json schema = {{"type", "object"},
                 {"properties", {{"input", std::move(input)}}},
                 {"required", Json::array({"input"})}};
  return add_tool(tool, name, CallForm::Custom, description, std::move(schema), out);
}

ApiStatus add_known(const HeldRow& row, const OneTool& tool, RequestTools& out) {
  const auto* known =
      std::find_if(std::begin(kKnownTools), std::end(kKnownTools), [&](const KnownTool& each) {
        return each.protocol == tool.form.protocol && each.type == row.type;
      });
  const auto environment = tool.from.find("environment");
  const bool elsewhere =
      // A search by the server is for more tools than fit a prompt; here all are offered.
      (known->form == CallForm::ToolSearch && string_or(tool.from, "execution", "") != "client") ||
      (environment != tool.from.end() &&
       string_or(*environment, "type", "").starts_with("container"));
  if (elsewhere) {
    note_skipped(row, tool.where, out.notes);
    return {};
  }
  const auto schema = tool.from.find("parameters");
  const bool given = schema != tool.from.end() && schema->is_object();
  return add_tool(tool, string_or(tool.from, "name", known->name), known->form,
                  string_or(tool.from, "description", known->description),
                  given ? *schema : Json::parse(known->schema), out);
}

ApiStatus add_any(const OneTool& tool, RequestTools& out);

ApiStatus add_namespace(const OneTool& tool, RequestTools& out) {
  const std::string name = string_or(tool.from, "name", "");
  const auto inner = tool.from.find("tools");
  if (name.empty() || !tool.space.empty()) {
    return bad_place(tool.where, name.empty() ? "has no name" : "is a namespace within another");
  }
  if (inner == tool.from.end() || !inner->is_array()) return bad_place(tool.where, "has no tools");
  for (size_t i = 0; i < inner->size(); ++i) {
    const OneTool one = {(*inner)[i], fmt::format("{}.tools[{}]", tool.where, i), tool.form, name};
    KTX_TRY(add_any(one, out));
  }
  return {};
}

ApiStatus add_any(const OneTool& tool, RequestTools& out) {
  if (!tool.from.is_object()) {
    return bad_place(tool.where, fmt::format("is {}, expected an object", show(tool.from)));
  }
  const auto given = tool.from.find("type");
  const bool untyped = given == tool.from.end() || given->is_null();
  const std::string type(untyped ? std::string(tool.form.own_type)
                                 : string_or(tool.from, "type", ""));
  const HeldRow* row = find_held(tool.form.protocol, Held::Tool, type);
  if (row == nullptr) return refuse_held(tool.form.protocol, Held::Tool, type, tool.where);
  switch (row->as) {
    case HeldAs::Function:
      return add_function(tool, out);
    case HeldAs::Custom:
      return add_custom(tool, out);
    case HeldAs::Namespace:
      return add_namespace(tool, out);
    case HeldAs::Known:
      return add_known(*row, tool, out);
    default:
      note_skipped(*row, tool.where, out.notes);
      return {};
  }
}

// Which tool an entry of a tool_choice names; null: none that is offered.
const ClientTool* chosen_tool(const Json& entry, const std::vector<ClientTool>& clients) {
  const std::string type = string_or(entry, "type", "");
  const auto inner = entry.find(type);
  const Json& named = inner != entry.end() && inner->is_object() ? *inner : entry;
  const std::string name = string_or(named, "name", "");
  if (!name.empty())
    return client_tool(clients, shown_name(string_or(named, "namespace", ""), name));
  // {"type": "local_shell"} has its name in the type.
  const HeldRow* row = find_held(Protocol::Responses, Held::Tool, type);
  return row != nullptr && row->as == HeldAs::Known ? client_tool(clients, type) : nullptr;
}

}  // namespace

std::string_view schema_field(ToolForm form) {
  return row_of(form).schema_field;
}

ApiStatus read_tools(const Json& list, ToolForm form, const std::string& where,
                     RequestTools& tools) {
  if (list.size() > kMaxTools) {
    return bad_place(where,
                     fmt::format("has {} items, at most {} are possible", list.size(), kMaxTools));
  }
  for (size_t i = 0; i < list.size(); ++i) {
    KTX_TRY(add_any({list[i], fmt::format("{}[{}]", where, i), row_of(form)}, tools));
  }
  return {};
}

ApiResult<RequestTools> offered_tools(const Json* list, ToolForm form) {
  RequestTools tools;
  if (list != nullptr) KTX_TRY(read_tools(*list, form, "tools", tools));
  return tools;
}

std::string shown_name(const std::string& space, const std::string& name) {
  if (space.empty() || name.starts_with(space)) return name;
  return space + (space.ends_with('_') ? "" : "__") + name;
}

const ClientTool* client_tool(const std::vector<ClientTool>& tools, std::string_view called) {
  const ClientTool* by_name = nullptr;
  bool several = false;
  for (const ClientTool& tool : tools) {
    if (tool.shown == called) return &tool;
    // "mcp__git.log" and "mcp__git/log" are written, too.
    const bool joined = !tool.space.empty() &&
                        called.size() == tool.space.size() + 1 + tool.name.size() &&
                        called.starts_with(tool.space) && called.ends_with(tool.name) &&
                        (called[tool.space.size()] == '.' || called[tool.space.size()] == '/');
    if (tool.name != called && !joined) continue;
    several = by_name != nullptr;
    by_name = &tool;
  }
  return several ? nullptr : by_name;
}

Json shown_choice(const Json& choice, const RequestTools& tools) {
  if (!choice.is_object()) return choice;
  const std::string type = string_or(choice, "type", "");
  if (type == "allowed_tools") {
    const auto inner = choice.find("allowed_tools");
    Json allowed = inner != choice.end() && inner->is_object() ? *inner : choice;
    const auto list = allowed.find("tools");
    if (list == allowed.end() || !list->is_array()) return choice;
    Json names = Json::array();
    for (const Json& entry : *list) {
      const ClientTool* tool = entry.is_object() ? chosen_tool(entry, tools.clients) : nullptr;
      // One that is left out cannot be called, whatever is allowed.
      const bool skipped = tool == nullptr && entry.is_object() && !entry.contains("name") &&
                           !entry.contains("function");
      if (skipped) continue;
      names.push_back(tool == nullptr ? entry : Json{{"type", "function"}, {"name", tool->shown}});
    }
    if (names.empty() && string_or(allowed, "mode", "") == "auto" && !list->empty()) return "none";
    allowed["type"] = "allowed_tools";
    allowed["tools"] = std::move(names);
    return allowed;
  }
  const ClientTool* tool = chosen_tool(choice, tools.clients);
  return tool == nullptr ? choice : Json{{"type", "function"}, {"name", tool->shown}};
}

std::string custom_input(const std::string& arguments) {
  const Json object = parse_nested(arguments);
  if (object.is_string()) return object.get<std::string>();
  if (!object.is_object()) return arguments;
  if (const auto input = object.find("input"); input != object.end() && input->is_string()) {
    return input->get<std::string>();
  }
  // Models have other names for the only text.
  if (object.size() == 1 && object.begin()->is_string()) return object.begin()->get<std::string>();
  return arguments;
}

std::string custom_arguments(const std::string& input) {
  return dump(Json{{"input", input}});
}

}  // namespace ktx::server

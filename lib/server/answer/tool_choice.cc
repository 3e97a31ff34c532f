#include "lib/server/answer/tool_choice.h"

#include <fmt/format.h>

#include <algorithm>

#include "lib/server/request/tool_parameters.h"
#include "lib/support/strings.h"

namespace ktx::server {
namespace {

ApiError bad_choice(const std::string& message) {
  return {400, message, "tool_choice", ""};
}

struct ToolChoice {
  enum class Mode { Auto, None, Required };
  Mode mode = Mode::Auto;
  std::vector<std::string> names;  // of the tools that are left; empty: all
};
struct ModeRow {
  std::string_view name;
  ToolChoice::Mode mode;
};
constexpr ModeRow kModes[] = {{"auto", ToolChoice::Mode::Auto},
                              {"none", ToolChoice::Mode::None},
                              {"required", ToolChoice::Mode::Required},
                              {"any", ToolChoice::Mode::Required}};

const ModeRow* find_mode(const std::string& name) {
  const auto row = std::find_if(std::begin(kModes), std::end(kModes),
                                [&](const ModeRow& mode) { return mode.name == name; });
  return row == std::end(kModes) ? nullptr : row;
}

// The name of {"function": {"name": n}} or {"name": n}; "" for none.
std::string chosen_name(const Json& choice) {
  if (!choice.is_object()) return "";
  const auto function = choice.find("function");
  return string_or(function != choice.end() ? *function : choice, "name", "");
}

ApiResult<ToolChoice> read_allowed_tools(const Json& given) {
  const auto inner = given.find("allowed_tools");
  const Json& allowed = inner != given.end() && inner->is_object() ? *inner : given;
  const ModeRow* mode = find_mode(string_or(allowed, "mode", ""));
  if (mode == nullptr || mode->mode == ToolChoice::Mode::None) {
    return bad_choice("'tool_choice.mode' of allowed_tools must be auto or required");
  }
  const auto list = allowed.find("tools");
  if (list == allowed.end() || !list->is_array() || list->empty()) {
    return bad_choice("'tool_choice.tools' of allowed_tools must be a list of tools");
  }
  ToolChoice choice = {mode->mode, {}};
  for (const Json& tool : *list) {
    choice.names.push_back(chosen_name(tool));
    if (choice.names.back().empty())
      return bad_choice("'tool_choice.tools' has a tool without a name");
  }
  return choice;
}

ApiResult<ToolChoice> read_choice(const Json& given) {
  const bool object = given.is_object();
  const std::string type = object              ? string_or(given, "type", "")
                           : given.is_string() ? given.get<std::string>()
                                               : "";
  if (const ModeRow* row = find_mode(type)) return ToolChoice{row->mode, {}};
  if (object && type == "allowed_tools") return read_allowed_tools(given);
  // {"function": {"name": n}} without a type is one, too.
  if (object &&
      (type == "function" || type == "tool" || (type.empty() && !given.contains("type")))) {
    const std::string name = chosen_name(given);
    if (name.empty()) return bad_choice("'tool_choice' names no function");
    return ToolChoice{ToolChoice::Mode::Required, {name}};
  }
  return bad_choice(
      fmt::format("'tool_choice' is {}, expected none, auto, required, any or a function",
                  object && given.contains("type") ? show(given["type"]) : show(given)));
}

// Calls beside what constrains the answer.
void allow_calls(text::ToolCallFormat form, bool is_format,
                 std::vector<text::CallableTool> callable, Json& tools, Constraint& constraint) {
  const bool generic = form == text::ToolCallFormat::Generic;
  if (is_format) {
    constraint.or_call = !generic;
    if (!generic && form != text::ToolCallFormat::Llama3) return;
    // Bare calls are a part of the grammar.
    if (constraint.kind == Constraint::Kind::JsonObject) constraint.schema = {{"type", "object"}};
    constraint.kind = generic ? Constraint::Kind::ToolAnswer : Constraint::Kind::JsonSchema;
    constraint.tools = std::move(callable);
    return;
  }
  if (!generic) return;
  // A grammar has the whole answer, calls and text; one of the request leaves no room for calls.
  if (constraint.kind != Constraint::Kind::None) {
    tools = nullptr;
    return;
  }
  constraint.kind = Constraint::Kind::ToolAnswer;
  constraint.tools = std::move(callable);
  constraint.field = "tools";
}

}  // namespace

ApiStatus apply_tool_choice(const ServedModel& model, const Json* given, ToolForm form, Json& tools,
                            Constraint& constraint) {
  const ToolChoice choice = given == nullptr ? ToolChoice() : KTX_TRY(read_choice(*given));
  if (choice.mode == ToolChoice::Mode::None) {
    tools = nullptr;
    return {};
  }
  const bool forced = choice.mode == ToolChoice::Mode::Required;
  if (tools.is_null()) {
    if (!forced && choice.names.empty()) return {};
    return bad_choice("'tool_choice' is given without 'tools'");
  }
  if (model.tool_format == text::ToolCallFormat::None && !forced) {
    return ApiError{400,
                    "tools are off for this model (--tool-format none); 'tool_choice' can force a "
                    "call all the same",
                    "tools", "tools_not_supported"};
  }
  for (const std::string& name : choice.names) {
    const bool offered = std::any_of(tools.begin(), tools.end(), [&](const Json& tool) {
      return tool["function"]["name"] == name;
    });
    if (!offered) {
      return bad_choice(fmt::format("'tool_choice' names '{}', which is no tool", printable(name)));
    }
  }
  Json kept = Json::array();
  std::vector<text::CallableTool> callable;
  for (size_t i = 0; i < tools.size(); ++i) {
    const Json& function = tools[i]["function"];
    const std::string name = function["name"];
    if (!choice.names.empty() &&
        std::find(choice.names.begin(), choice.names.end(), name) == choice.names.end()) {
      continue;
    }
    callable.push_back(
        {name, function["parameters"], fmt::format("'tools[{}].{}'", i, schema_field(form))});
    kept.push_back(tools[i]);
  }
  tools = std::move(kept);
  // A format is that of an answer in words; a call needs none.
  const bool is_format = constraint.kind == Constraint::Kind::JsonSchema ||
                         constraint.kind == Constraint::Kind::JsonObject;
  if (!forced) {
    allow_calls(model.tool_format, is_format, std::move(callable), tools, constraint);
    return {};
  }
  if (constraint.kind != Constraint::Kind::None && !is_format) {
    return bad_choice(fmt::format(
        "a forced tool call and '{}' exclude each other; send one of them", constraint.field));
  }
  constraint = {};
  constraint.kind = Constraint::Kind::ToolCall;
  constraint.tools = std::move(callable);
  constraint.field = "tools";
  return {};
}

ApiStatus use_tools(const ServedModel& model, const Json* choice, ToolForm form,
                    const RequestTools& tools, ChatInput& input, Constraint& constraint) {
  input.notes.insert(input.notes.end(), tools.notes.begin(), tools.notes.end());
  input.tools = tools.functions;
  const Json shown = choice == nullptr ? Json() : shown_choice(*choice, tools);
  return apply_tool_choice(model, choice == nullptr ? nullptr : &shown, form, input.tools,
                           constraint);
}

}  // namespace ktx::server

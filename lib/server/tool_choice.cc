#include "lib/server/tool_choice.h"

#include <fmt/format.h>

namespace ktx::server {
namespace {

ApiError bad(const std::string& message) {
  return {400, message, "tool_choice", ""};
}

// Reasoning and tool calls are split off an answer to `input`.
void use_chat_parsers(const ServedModel& model, const ChatInput& input, const ChatPrompt& prompt,
                      const Constraint& constraint, AnswerSpec& spec) {
  if (constraint.kind != Constraint::Kind::None) {
    spec.forced_call = constraint.tool_call;
    return;
  }
  spec.split_reasoning = model.reasoning.has_value();
  spec.reasoning_open = prompt.reasoning_open;
  spec.parse_tools = !input.tools.is_null();
  if (!spec.parse_tools) return;
  for (const Json& tool : input.tools) {
    spec.tool_names.push_back(tool["function"]["name"].get<std::string>());
  }
}

}  // namespace

std::optional<ApiError> apply_tool_choice(const ServedModel& model, const Json* choice, Json& tools,
                                          Constraint& constraint) {
  if (!tools.is_null() && model.tool_format == text::ToolCallFormat::None &&
      !(choice != nullptr && *choice == "none")) {
    return ApiError{400, "the chat template of this model knows no tools", "tools",
                    "tools_not_supported"};
  }
  if (choice == nullptr || *choice == "auto") return std::nullopt;
  if (*choice == "none") {
    tools = nullptr;
    return std::nullopt;
  }
  if (tools.is_null()) return bad("'tool_choice' is given without 'tools'");
  std::string wanted;
  if (choice->is_object()) {
    const auto function = choice->find("function");
    if (function == choice->end() || !function->is_object() || !function->contains("name") ||
        !(*function)["name"].is_string()) {
      return bad("'tool_choice' names no function");
    }
    wanted = (*function)["name"];
    Json kept = Json::array();
    for (const Json& tool : tools) {
      if (tool["function"]["name"] == wanted) kept.push_back(tool);
    }
    if (kept.empty()) return bad(fmt::format("'tool_choice' names '{}', which is no tool", wanted));
    tools = std::move(kept);
  } else if (*choice != "required") {
    return bad(fmt::format("'tool_choice' is {}, expected none, auto, required or a function",
                           show(*choice)));
  }
  if (constraint.kind != Constraint::Kind::None) {
    return bad("a forced tool call and a format of the answer exclude each other");
  }
  Json calls = Json::array();
  for (const Json& tool : tools) {
    const Json& function = tool["function"];
    calls.push_back(
        {{"type", "object"},
         {"properties",
          {{"name", {{"const", function["name"]}}}, {"arguments", function["parameters"]}}},
         {"required", Json::array({"name", "arguments"})},
         {"additionalProperties", false}});
  }
  constraint.kind = Constraint::Kind::JsonSchema;
  constraint.schema = calls.size() == 1 ? calls[0] : Json{{"anyOf", calls}};
  constraint.tool_call = true;
  return std::nullopt;
}

std::optional<ApiError> make_chat_specs(const ServedModel& model, const AnswerFields& fields,
                                        ChatInput input, int64_t limit_seconds,
                                        std::vector<AnswerSpec>& specs) {
  const Constraint& constraint = fields.constraint;
  if (constraint.kind != Constraint::Kind::None && !input.extra.contains("enable_thinking")) {
    input.extra["enable_thinking"] = false;
  }
  ChatPrompt prompt;
  if (auto error = make_prompt(model, input, prompt)) return error;
  if (auto error = make_specs(model, fields, prompt.ids, limit_seconds, specs)) return error;
  for (AnswerSpec& spec : specs) use_chat_parsers(model, input, prompt, constraint, spec);
  return std::nullopt;
}

}  // namespace ktx::server

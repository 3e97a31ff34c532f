#include "lib/server/tool_choice.h"

#include <fmt/format.h>

#include <algorithm>

namespace ktx::server {
namespace {

ApiError bad(const std::string& message) {
  return {400, message, "tool_choice", ""};
}

// Does a schema speak of strings (also where null may stand for one)?
bool is_text(const Json& schema) {
  if (!schema.is_object()) return false;
  if (const auto type = schema.find("type"); type != schema.end()) {
    if (*type == "string") return true;
    if (type->is_array()) return std::count(type->begin(), type->end(), Json("string")) > 0;
    return false;
  }
  const auto values = schema.find("enum");
  return values != schema.end() && values->is_array() &&
         std::all_of(values->begin(), values->end(),
                     [](const Json& value) { return value.is_string(); });
}

std::vector<text::OfferedTool> offered_tools(const Json& tools) {
  std::vector<text::OfferedTool> out;
  for (const Json& tool : tools) {
    const Json& function = tool["function"];
    text::OfferedTool& offered = out.emplace_back();
    offered.name = function["name"].get<std::string>();
    const auto properties = function["parameters"].find("properties");
    if (properties == function["parameters"].end() || !properties->is_object()) continue;
    for (const auto& [name, schema] : properties->items()) {
      if (is_text(schema)) offered.text_parameters.push_back(name);
    }
  }
  return out;
}

// Reasoning and tool calls are split off an answer to `input`.
void use_chat_parsers(const ServedModel& model, const ChatInput& input, const ChatPrompt& prompt,
                      const Constraint& constraint, AnswerSpec& spec) {
  if (constraint.kind != Constraint::Kind::None) {
    spec.forced_call = constraint.tool_call;
    const auto asked = input.extra.find("enable_thinking");
    const bool reasons =
        prompt.reasoning_open || (asked != input.extra.end() && *asked == Json(true));
    if (!reasons || !model.reasoning_tokens) return;
    spec.split_reasoning = true;
    spec.reasoning_open = prompt.reasoning_open;
    spec.filter = std::make_unique<ReasoningFilter>(*model.reasoning_tokens, prompt.reasoning_open,
                                                    std::move(spec.filter));
    return;
  }
  spec.split_reasoning = model.reasoning.has_value();
  spec.reasoning_open = prompt.reasoning_open;
  spec.parse_tools = !input.tools.is_null();
  if (!spec.parse_tools) return;
  spec.tools = offered_tools(input.tools);
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
  // A grammar is that of a whole answer.
  if (constraint.kind != Constraint::Kind::None) input.continue_last = false;
  // DeepSeek's templates have another name for it.
  if (const auto asked = input.extra.find("enable_thinking");
      asked != input.extra.end() && !input.extra.contains("thinking")) {
    const Json value = *asked;
    input.extra["thinking"] = value;
  }
  ChatPrompt prompt;
  if (auto error = make_prompt(model, input, prompt)) return error;
  if (auto error = make_specs(model, fields, prompt.ids, limit_seconds, specs)) return error;
  for (AnswerSpec& spec : specs) use_chat_parsers(model, input, prompt, constraint, spec);
  return std::nullopt;
}

}  // namespace ktx::server

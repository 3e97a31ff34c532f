#include "lib/text/answers/tools_as_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <span>

#include "lib/text/answers/call_cursor.h"
#include "lib/text/exact_json.h"

namespace ktx::text {
namespace {

using Json = nlohmann::ordered_json;

// A call: $N is its name, $A its arguments; with `parameter` these are one such text after the
// other, $K the key and $V the value.
struct TextForm {
  ToolCallFormat format;
  std::string_view call, parameter;
};
constexpr TextForm kTextForms[] = {
    {ToolCallFormat::Generic, "{\"tool_call\": {\"name\": \"$N\", \"arguments\": $A}}", ""},
    {ToolCallFormat::Hermes, "<tool_call>\n{\"name\": \"$N\", \"arguments\": $A}\n</tool_call>",
     ""},
    {ToolCallFormat::Llama3, "{\"name\": \"$N\", \"parameters\": $A}", ""},
    {ToolCallFormat::Mistral, "[TOOL_CALLS][{\"name\": \"$N\", \"arguments\": $A}]", ""},
    {ToolCallFormat::Nemotron, "<TOOLCALL>[{\"name\": \"$N\", \"arguments\": $A}]</TOOLCALL>", ""},
    {ToolCallFormat::Python,
     "<|tool_call_start|>[{\"name\": \"$N\", \"arguments\": $A}]<|tool_call_end|>", ""},
    {ToolCallFormat::DeepSeek,
     "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>$N<｜tool▁sep｜>$A<｜tool▁call▁end｜>"
     "<｜tool▁calls▁end｜>",
     ""},
    {ToolCallFormat::Kimi,
     "<|tool_calls_section_begin|><|tool_call_begin|>functions.$N:0<|tool_call_argument_begin|>$A"
     "<|tool_call_end|><|tool_calls_section_end|>",
     ""},
    {ToolCallFormat::Glm, "<tool_call>$N\n$A</tool_call>",
     "<arg_key>$K</arg_key>\n<arg_value>$V</arg_value>\n"},
    {ToolCallFormat::QwenCoder, "<tool_call>\n<function=$N>\n$A</function>\n</tool_call>",
     "<parameter=$K>\n$V\n</parameter>\n"},
    {ToolCallFormat::MiniMax,
     "<minimax:tool_call>\n<invoke name=\"$N\">\n$A</invoke>\n</minimax:tool_call>",
     "<parameter name=\"$K\">$V</parameter>\n"},
    {ToolCallFormat::Atem,
     "<atem:function_calls>\n<atem:invoke name=\"$N\">\n$A</atem:invoke>\n</atem:function_calls>",
     "<atem:parameter name=\"$K\">$V</atem:parameter>\n"},
};

const TextForm* find_form(ToolCallFormat format) {
  const auto found = std::find_if(std::begin(kTextForms), std::end(kTextForms),
                                  [&](const TextForm& form) { return form.format == format; });
  return found == std::end(kTextForms) ? nullptr : found;
}

using Slots = std::span<const std::pair<char, std::string_view>>;
std::string fill(std::string_view pattern, Slots slots) {
  std::string out;
  for (size_t at = 0; at < pattern.size(); ++at) {
    const auto slot = std::find_if(slots.begin(), slots.end(), [&](const auto& s) {
      return pattern[at] == '$' && at + 1 < pattern.size() && pattern[at + 1] == s.first;
    });
    if (slot == slots.end()) {
      out += pattern[at];
    } else {
      out += slot->second;
      ++at;
    }
  }
  return out;
}

std::string text_of(const Json& object, const char* key) {
  const auto value = object.find(key);
  return value != object.end() && value->is_string() ? value->get<std::string>() : "";
}

std::string parameter_text(const TextForm& form, std::string_view key, std::string_view value) {
  const std::pair<char, std::string_view> slots[] = {{'K', key}, {'V', value}};
  return fill(form.parameter, slots);
}

std::string call_text(const TextForm& form, std::string_view name, std::string_view arguments) {
  const std::pair<char, std::string_view> slots[] = {{'N', name}, {'A', arguments}};
  return fill(form.call, slots);
}

}  // namespace

bool has_text_form(ToolCallFormat format) {
  return find_form(format) != nullptr;
}

std::vector<std::string> text_form_names() {
  std::vector<std::string> names;
  for (const TextForm& form : kTextForms) names.emplace_back(format_name(form.format));
  return names;
}

std::string written_call(ToolCallFormat format, std::string_view name, const Json& arguments) {
  const TextForm* form = find_form(format);
  if (form == nullptr) return "";
  const bool as_text = arguments.is_string();
  const std::string json = as_text ? arguments.get<std::string>() : json_text(arguments);
  std::string all = json.empty() ? "{}" : json;
  if (!form->parameter.empty()) {
    all.clear();
    const Json object = as_text ? parse_call_json(json) : arguments;
    if (object.is_object()) {
      for (const auto& [key, value] : object.items()) {
        const std::string said = value.is_string() ? value.get<std::string>() : json_text(value);
        all += parameter_text(*form, key, said);
      }
    }
  }
  return call_text(*form, name, all);
}

std::string tools_text(const Json& tools, ToolCallFormat format, bool list, bool forced) {
  std::string text;
  if (list) {
    text = "You can call these functions:\n\n";
    for (const Json& tool : tools) text += json_text(tool["function"]) + "\n";
    text += "\n";
  }
  if (forced) {
    return text +
           "Answer with a call of one of them, as JSON: {\"name\": its name, \"arguments\": an "
           "object}";
  }
  if (format == ToolCallFormat::Generic) {
    return text +
           "Answer with one JSON object and nothing else. To call a function: {\"tool_call\": "
           "{\"name\": its name, \"arguments\": an object}}. To call several: {\"tool_calls\": [a "
           "list of such calls]}. To answer the user: {\"response\": your answer as a string}. You "
           "get the results of calls in the next message.";
  }
  const TextForm* form = find_form(format);
  if (form == nullptr) return text;
  const std::string arguments = form->parameter.empty()
                                    ? "{\"PARAMETER\": VALUE}"
                                    : parameter_text(*form, "PARAMETER", "VALUE");
  return text + "To call one, write:\n\n" + call_text(*form, "NAME", arguments) +
         "\n\nYou get the results of calls in the next message. Without a call, answer as usual.";
}

void add_system_text(Json& messages, const std::string& text) {
  if (!messages.empty() && messages[0]["role"] == "system") {
    messages[0]["content"] = text_of(messages[0], "content") + "\n\n" + text;
  } else {
    messages.insert(messages.begin(), Json{{"role", "system"}, {"content", text}});
  }
}

void write_out_calls(Json& messages, ToolCallFormat format) {
  std::map<std::string, std::string> names;  // of calls, by id
  Json out = Json::array();
  bool behind_result = false;
  for (Json& message : messages) {
    const std::string role = text_of(message, "role");
    std::string content = text_of(message, "content");
    if (const auto calls = message.find("tool_calls"); calls != message.end()) {
      std::string listed;
      for (const Json& call : *calls) {
        const Json& function = call["function"];
        const std::string name = text_of(function, "name");
        names[text_of(call, "id")] = name;
        listed += (listed.empty() ? "" : "\n") + written_call(format, name, function["arguments"]);
      }
      content += (content.empty() || listed.empty() ? "" : "\n") + listed;
      message.erase("tool_calls");
      message["content"] = content;
    }
    if (role == "tool") {
      const auto known = names.find(text_of(message, "tool_call_id"));
      std::string name = text_of(message, "name");
      if (known != names.end()) name = known->second;
      content = fmt::format("The result of {}:\n{}", name.empty() ? std::string("the call") : name,
                            content);
      message = Json{{"role", "user"}, {"content", content}};
    }
    if (behind_result && message["role"] == "user") {
      out.back()["content"] = text_of(out.back(), "content") + "\n\n" + content;
    } else {
      out.push_back(message);
    }
    behind_result = role == "tool";
  }
  messages = std::move(out);
}

}  // namespace ktx::text

// Tool calls with JSON arguments: Hermes, Llama 3, Mistral, DeepSeek, Kimi.
#include <algorithm>
#include <optional>
#include <utility>

#include "lib/text/answers/call_formats.h"

namespace ktx::text {
namespace {

using Json = nlohmann::ordered_json;

// The arguments as JSON text: an object, or a string that holds one; none is {}.
std::optional<std::string> arguments_text(Json arguments) {
  if (arguments.is_string()) {
    arguments = parse_call_json(arguments.get_ref<const std::string&>());
  }
  if (arguments.is_null()) return "{}";
  if (!arguments.is_object()) return std::nullopt;
  return arguments.dump(-1, ' ', false, Json::error_handler_t::replace);
}

CallState add_call(std::string_view name, std::string_view arguments, std::string_view id,
                   CallRead& read) {
  name = trimmed(name);
  if (name.empty()) return CallState::No;
  std::optional<std::string> text = arguments_text(parse_call_json(arguments));
  if (!text) return CallState::No;
  read.calls.push_back({std::string(name), std::move(*text), std::string(id)});
  return CallState::Call;
}

// {"name": …, "arguments" or "parameters": …, "id": …}
CallState add_call(const Json& json, CallRead& read) {
  if (!json.is_object()) return CallState::No;
  const auto name = json.find("name");
  if (name == json.end() || !name->is_string()) return CallState::No;
  const std::string& name_text = name->get_ref<const std::string&>();
  if (name_text.empty() || name_text.size() > kMaxToolNameBytes) return CallState::No;
  auto arguments = json.find("arguments");
  if (arguments == json.end()) arguments = json.find("parameters");
  std::optional<std::string> text =
      arguments_text(arguments == json.end() ? Json() : Json(*arguments));
  if (!text) return CallState::No;
  const auto id = json.find("id");
  const bool has_id = id != json.end() && id->is_string();
  read.calls.push_back({name_text, std::move(*text), has_id ? id->get<std::string>() : ""});
  return CallState::Call;
}

// Notes a call whose arguments are a JSON object at `in`.
void note_begun(const CallCursor& in, std::string_view name, std::string_view id, CallRead& read) {
  name = trimmed(name);
  if (in.at_end() || in.next() != '{' || name.empty()) return;
  read.begun = true;
  read.name = name;
  read.id = id;
  read.json_at = in.at();
}

// {"name": "f", "arguments": {   as far as it stands so.
CallState peek_head(CallCursor in, CallRead& read) {
  std::string_view name, key;
  KTX_STEP(in.literal("{"));
  in.space();
  KTX_STEP(in.literal("\"name\""));
  in.space();
  KTX_STEP(in.literal(":"));
  in.space();
  KTX_STEP(in.literal("\""));
  KTX_STEP(in.until("\"", name));
  if (name.find('\\') != std::string_view::npos) return CallState::No;
  KTX_STEP(in.literal("\""));
  in.space();
  KTX_STEP(in.literal(","));
  in.space();
  KTX_STEP(in.literal("\""));
  KTX_STEP(in.until("\"", key));
  if (key != "arguments" && key != "parameters") return CallState::No;
  KTX_STEP(in.literal("\""));
  in.space();
  KTX_STEP(in.literal(":"));
  in.space();
  note_begun(in, name, "", read);
  return CallState::Call;
}

bool offered(std::span<const OfferedTool> tools, std::string_view name) {
  return tools.empty() || std::any_of(tools.begin(), tools.end(),
                                      [&](const OfferedTool& tool) { return tool.name == name; });
}

}  // namespace

CallState read_hermes(CallCursor& in, std::span<const OfferedTool>, CallRead& read) {
  std::string_view json;
  KTX_STEP(in.literal("<tool_call>"));
  in.space();
  (void)peek_head(in, read);
  KTX_STEP(in.json(json));
  KTX_STEP(in.closer("</tool_call>"));
  return add_call(parse_call_json(json), read);
}

CallState read_llama3(CallCursor& in, std::span<const OfferedTool> tools, CallRead& read) {
  bool tagged = false;
  if (!in.at_end() && in.next() == '<') {
    KTX_STEP(in.literal(kPythonTag));
    tagged = true;
    in.space();
  }
  // A JSON answer is distinguished from a call by its first key, not at its end.
  CallCursor key = in;
  std::string_view first_key;
  KTX_STEP(key.literal("{"));
  key.space();
  KTX_STEP(key.literal("\""));
  KTX_STEP(key.until("\"", first_key));
  constexpr std::string_view kKeys[] = {"name", "parameters", "arguments", "type", "id"};
  if (std::find(std::begin(kKeys), std::end(kKeys), first_key) == std::end(kKeys)) {
    return CallState::No;
  }
  std::string_view json;
  (void)peek_head(in, read);
  read.begun = read.begun && (tagged || offered(tools, read.name));
  KTX_STEP(in.json(json));
  KTX_STEP(add_call(parse_call_json(json), read));
  return tagged || offered(tools, read.calls.back().name) ? CallState::Call : CallState::No;
}

CallState read_mistral(CallCursor& in, std::span<const OfferedTool>, CallRead& read) {
  std::string_view json;
  KTX_STEP(in.literal(kToolCalls));
  in.space();
  if (in.at_end()) return in.at_most();
  if (in.next() == '[') {
    KTX_STEP(in.json(json));
    const Json calls = parse_call_json(json);
    if (!calls.is_array() || calls.empty()) return CallState::No;
    for (const Json& call : calls) KTX_STEP(add_call(call, read));
    return CallState::Call;
  }
  std::string_view head;
  KTX_STEP(in.until("{", head));
  std::string_view id;
  head = head.substr(0, head.find("[ARGS]"));
  if (const size_t mark = head.find("[CALL_ID]"); mark != std::string_view::npos) {
    id = trimmed(head.substr(mark + 9));
    head = head.substr(0, mark);
  }
  note_begun(in, head, id, read);
  KTX_STEP(in.json(json));
  return add_call(head, json, id, read);
}

CallState read_deepseek(CallCursor& in, std::span<const OfferedTool>, CallRead& read) {
  if (const CallState section = in.literal(kCallsBegin); section == CallState::More) {
    return section;
  }
  in.space();
  std::string_view head, json;
  KTX_STEP(in.literal(kCallBegin));
  KTX_STEP(in.until(kCallSeparator, head));
  KTX_STEP(in.literal(kCallSeparator));
  const bool fenced = trimmed(head) == "function";
  if (fenced) {
    KTX_STEP(in.until("\n", head));
    in.space();
    KTX_STEP(in.literal("```json"));
  }
  in.space();
  note_begun(in, head, "", read);
  KTX_STEP(in.json(json));
  if (fenced) KTX_STEP(in.closer("```"));
  KTX_STEP(in.closer(kCallEnd));
  return add_call(head, json, "", read);
}

CallState read_kimi(CallCursor& in, std::span<const OfferedTool>, CallRead& read) {
  if (const CallState section = in.literal(kKimiBegin); section == CallState::More) {
    return section;
  }
  in.space();
  std::string_view id, json;
  KTX_STEP(in.literal(kKimiCall));
  KTX_STEP(in.until(kKimiArguments, id));
  KTX_STEP(in.literal(kKimiArguments));
  in.space();
  id = trimmed(id);
  std::string_view name = id.substr(0, id.rfind(':'));  // functions.NAME:0
  if (name.starts_with("functions.")) name.remove_prefix(10);
  note_begun(in, name, id, read);
  KTX_STEP(in.json(json));
  KTX_STEP(in.closer(kKimiCallEnd));
  return add_call(name, json, id, read);
}

}  // namespace ktx::text

// Tool calls with JSON arguments: Hermes, Llama 3, Mistral, Nemotron, DeepSeek, Kimi.
#include <algorithm>
#include <optional>
#include <utility>

#include "lib/text/answers/call_formats.h"
#include "lib/text/exact_json.h"

namespace ktx::text {
namespace {

using Json = nlohmann::ordered_json;

// The arguments as JSON text: an object, or a string that holds one; none is {}.
std::optional<std::string> arguments_text(const Json& arguments) {
  if (arguments.is_null() || (arguments.is_array() && arguments.empty())) return "{}";
  if (arguments.is_object()) {
    return json_text(arguments);
  }
  if (!arguments.is_string()) return std::nullopt;
  const std::string_view text = trimmed(arguments.get_ref<const std::string&>());
  if (text.empty() || json_of_word(text) == "null") return "{}";
  CallJson mended;
  mended.read(text);
  if (mended.at() < text.size() || !mended.close()) return std::nullopt;
  const Json parsed = parse_call_json(mended.json());
  return parsed.is_object() ? std::optional(mended.json()) : std::nullopt;
}

CallState add_call(std::string_view name, std::string_view arguments, std::string_view id,
                   CallRead& read) {
  name = trimmed(name);
  if (name.empty() || !arguments.starts_with('{')) return CallState::No;
  read.calls.push_back({std::string(name), std::string(arguments), std::string(id)});
  return CallState::Call;
}

// Notes a call whose arguments are a JSON object that begins at `at` of the scan's.
void note_begun(std::string_view json, size_t at, std::string_view name, std::string_view id,
                CallRead& read) {
  name = trimmed(name);
  if (at >= json.size() || json[at] != '{' || name.empty()) return;
  read.begun = true;
  read.name = name;
  read.id = id;
  read.json_at = at;
}

// {"name": "f", "arguments": {   as far as it stands so.
CallState peek_head(std::string_view json, CallRead& read) {
  CallScan unused;
  CallCursor in(json, false, unused);
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
  note_begun(json, in.at(), name, "", read);
  return CallState::Call;
}

// The first key of an object.
CallState peek_key(std::string_view json, std::string_view& key) {
  CallScan unused;
  CallCursor in(json, false, unused);
  KTX_STEP(in.literal("{"));
  in.space();
  KTX_STEP(in.literal("\""));
  return in.until("\"", key);
}

bool offered(std::span<const OfferedTool> tools, std::string_view name) {
  return tools.empty() || std::any_of(tools.begin(), tools.end(),
                                      [&](const OfferedTool& tool) { return tool.name == name; });
}

// A block of markdown may be around it.
CallState skip_fence(CallCursor& in) {
  for (const std::string_view fence : {"```json", "```"}) {
    const CallState state = in.literal(fence);
    if (state == CallState::Call) break;
    if (state == CallState::More && !in.at_end()) return state;
  }
  in.space();
  return CallState::Call;
}

}  // namespace

CallState add_calls(const Json& json, CallRead& read) {
  if (json.is_array() && !json.empty()) {
    for (const Json& call : json)
      KTX_STEP(call.is_object() ? add_calls(call, read) : CallState::No);
    return CallState::Call;
  }
  if (!json.is_object()) return CallState::No;
  if (const auto function = json.find("function"); function != json.end()) {
    return function->is_object() ? add_calls(*function, read) : CallState::No;
  }
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

CallState read_hermes(CallCursor& in, std::span<const OfferedTool>, CallRead& read) {
  constexpr std::string_view kOpen = "<tool_call>", kClose = "</tool_call>";
  constexpr std::string_view kNext[] = {kOpen, "{"};
  std::string_view json;
  if (!in.stands("{")) KTX_STEP(in.opener(kOpen));
  KTX_STEP(skip_fence(in));
  const CallState there = in.json(json, kClose);
  (void)peek_head(in.json_so_far(), read);
  KTX_STEP(there);
  in.space();
  KTX_STEP(skip_fence(in));
  KTX_STEP(in.closer(kClose, kNext));
  return add_calls(parse_call_json(json), read);
}

CallState read_llama3(CallCursor& in, std::span<const OfferedTool> tools, CallRead& read) {
  bool tagged = false;
  if (!in.at_end() && in.next() == '<') {
    KTX_STEP(in.opener(kPythonTag));
    tagged = true;
  }
  std::string_view json, key;
  const CallState there = in.json(json);
  // A JSON answer is distinguished from a call by its first key, not at its end.
  const CallState keyed = peek_key(in.json_so_far(), key);
  constexpr std::string_view kKeys[] = {"name", "parameters", "arguments", "type", "id"};
  const bool known = std::find(std::begin(kKeys), std::end(kKeys), key) != std::end(kKeys);
  if (keyed == CallState::No || (keyed == CallState::Call && !known)) return CallState::No;
  (void)peek_head(in.json_so_far(), read);
  read.begun = read.begun && (tagged || offered(tools, read.name));
  KTX_STEP(there);
  KTX_STEP(add_calls(parse_call_json(json), read));
  return tagged || offered(tools, read.calls.back().name) ? CallState::Call : CallState::No;
}

CallState read_mistral(CallCursor& in, std::span<const OfferedTool>, CallRead& read) {
  std::string_view json, head, id;
  KTX_STEP(in.opener(kToolCalls));
  if (in.at_end()) return in.at_most();
  if (in.next() == '[' || in.next() == '{') {
    KTX_STEP(in.json(json));
    return add_calls(parse_call_json(json), read);
  }
  KTX_STEP(in.until({kMistralArguments, "{"}, head));
  (void)in.literal(kMistralArguments);
  if (const size_t mark = head.find("[CALL_ID]"); mark != std::string_view::npos) {
    id = trimmed(head.substr(mark + 9));
    head = head.substr(0, mark);
  }
  const CallState there = in.arguments(json, kToolCalls);
  note_begun(in.json_so_far(), 0, head, id, read);
  KTX_STEP(there);
  return add_call(head, json, id, read);
}

CallState read_nemotron(CallCursor& in, std::span<const OfferedTool>, CallRead& read) {
  std::string_view json;
  KTX_STEP(in.opener(kNemotronCalls));
  KTX_STEP(in.json(json, kNemotronCallsEnd));
  in.space();
  KTX_STEP(in.closer(kNemotronCallsEnd));
  return add_calls(parse_call_json(json), read);
}

CallState read_deepseek(CallCursor& in, std::span<const OfferedTool>, CallRead& read) {
  if (const CallState section = in.opener(kCallsBegin); section == CallState::More) {
    return section;
  }
  in.space();
  std::string_view head, json;
  KTX_STEP(in.opener(kCallBegin));
  KTX_STEP(in.until({kCallSeparator, kCallEnd}, head));
  const bool separated = in.literal(kCallSeparator) == CallState::Call;
  bool fenced = separated && trimmed(head) == "function";
  if (fenced) {
    KTX_STEP(in.until("\n", head));
    in.space();
    fenced = !in.stands("{");
    if (fenced) KTX_STEP(in.literal("```json"));
  }
  const CallState there = in.arguments(json, fenced ? "```" : kCallEnd);
  note_begun(in.json_so_far(), 0, head, "", read);
  KTX_STEP(there);
  if (fenced) KTX_STEP(in.closer("```"));
  KTX_STEP(in.closer(kCallEnd));
  return add_call(head, json, "", read);
}

CallState read_kimi(CallCursor& in, std::span<const OfferedTool>, CallRead& read) {
  if (const CallState section = in.opener(kKimiBegin); section == CallState::More) {
    return section;
  }
  in.space();
  std::string_view id, json;
  KTX_STEP(in.opener(kKimiCall));
  KTX_STEP(in.until({kKimiArguments, "{", kKimiCallEnd}, id));
  (void)in.literal(kKimiArguments);
  id = trimmed(id);
  std::string_view name = id.substr(0, id.rfind(':'));  // functions.NAME:0
  if (name.starts_with("functions.")) name.remove_prefix(10);
  in.space();
  KTX_STEP(skip_fence(in));
  const CallState there = in.arguments(json, kKimiCallEnd);
  note_begun(in.json_so_far(), 0, name, id, read);
  KTX_STEP(there);
  in.space();
  KTX_STEP(skip_fence(in));
  KTX_STEP(in.closer(kKimiCallEnd));
  return add_call(name, json, id, read);
}

}  // namespace ktx::text

#include "lib/text/tool_call_reader.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "lib/support/json_nesting.h"
#include "lib/text/partial_match.h"

namespace ktx::text {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kMaxJsonDepth = 100;
constexpr std::string_view kJsonOutsideStrings = " \t\r\n,:0123456789+-.eEtrufalsn";

constexpr std::string_view kCallsBegin = "<｜tool▁calls▁begin｜>";
constexpr std::string_view kCallsEnd = "<｜tool▁calls▁end｜>";
constexpr std::string_view kCallBegin = "<｜tool▁call▁begin｜>";
constexpr std::string_view kCallSeparator = "<｜tool▁sep｜>";
constexpr std::string_view kCallEnd = "<｜tool▁call▁end｜>";
constexpr std::string_view kPythonTag = "<|python_tag|>";
constexpr std::string_view kToolCalls = "[TOOL_CALLS]";
constexpr std::string_view kKimiBegin = "<|tool_calls_section_begin|>";
constexpr std::string_view kKimiEnd = "<|tool_calls_section_end|>";
constexpr std::string_view kKimiCall = "<|tool_call_begin|>";
constexpr std::string_view kKimiArguments = "<|tool_call_argument_begin|>";
constexpr std::string_view kKimiCallEnd = "<|tool_call_end|>";

constexpr std::string_view kFunction = "<function=";
constexpr std::string_view kParameter = "<parameter=";

constexpr std::string_view kHermesOpeners[] = {"<tool_call>"};
constexpr std::string_view kQwenCoderOpeners[] = {"<tool_call>", kFunction};
constexpr std::string_view kLlama3Openers[] = {kPythonTag};
constexpr std::string_view kMistralOpeners[] = {kToolCalls};
constexpr std::string_view kDeepSeekOpeners[] = {kCallsBegin, kCallBegin};
constexpr std::string_view kKimiOpeners[] = {kKimiBegin, kKimiCall};
constexpr std::string_view kLlama3Trailers[] = {";"};
constexpr std::string_view kQwenCoderTrailers[] = {"</tool_call>"};
constexpr std::string_view kDeepSeekTrailers[] = {kCallsEnd};
constexpr std::string_view kKimiTrailers[] = {kKimiEnd};

// Goes on from scan.at to the bracket that closes the first one; scan.at is left there.
JsonReach scan_brackets(std::string_view text, JsonScan& scan) {
  for (; scan.at < text.size(); ++scan.at) {
    const char c = text[scan.at];
    if (scan.escaped) {
      scan.escaped = false;
    } else if (scan.in_string) {
      if (c == '\\') scan.escaped = true;
      if (c == '"') scan.in_string = false;
    } else if (c == '"') {
      scan.in_string = true;
    } else if (c == '{' || c == '[') {
      if (++scan.depth > kMaxJsonDepth) return {scan.at, false, true};
    } else if (c == '}' || c == ']') {
      --scan.depth;
    } else if (kJsonOutsideStrings.find(c) == std::string_view::npos) {
      return {scan.at, false, true};  // at once, so that nothing long is held back in vain
    }
    if (scan.depth == 0) return {scan.at + 1, true, false};
  }
  return {scan.at, false, false};
}

// The text from its begin to its end; each step says whether it is there.
class Cursor {
 public:
  Cursor(std::string_view text, bool ended, JsonScan& scan)
      : text_(text), ended_(ended), scan_(scan) {}

  size_t at() const { return at_; }
  bool at_end() const { return at_ == text_.size(); }
  CallState at_most() const { return ended_ ? CallState::No : CallState::More; }
  char next() const { return text_[at_]; }

  void space() { at_ = std::min(text_.find_first_not_of(kAsciiSpace, at_), text_.size()); }
  CallState literal(std::string_view wanted) {
    const std::string_view rest = text_.substr(at_);
    if (rest.starts_with(wanted)) {
      at_ += wanted.size();
      return CallState::Call;
    }
    return wanted.starts_with(rest) ? at_most() : CallState::No;
  }
  // A closing marker; a text that ends where it should stand will do.
  CallState closer(std::string_view wanted) {
    space();
    const std::string_view rest = text_.substr(at_);
    if (ended_ && wanted.starts_with(rest)) {
      at_ = text_.size();
      return CallState::Call;
    }
    return literal(wanted);
  }
  // What stands in front of `marker`, and not the marker itself.
  CallState until(std::string_view marker, std::string_view& out) {
    const size_t found = text_.find(marker, at_);
    const size_t end = std::min(found, text_.size());
    if (end - at_ > kMaxToolNameBytes) return CallState::No;
    if (found == std::string_view::npos) return at_most();
    out = text_.substr(at_, found - at_);
    at_ = found;
    return CallState::Call;
  }
  // A JSON object or array, by its brackets.
  CallState json(std::string_view& out) {
    if (at_end()) return at_most();
    const size_t begin = at_;
    if (next() != '{' && next() != '[') return CallState::No;
    if (scan_.at < begin) scan_ = {.at = begin};
    if (scan_.at == begin || scan_.depth > 0) {  // else found at an earlier call
      const JsonReach reach = scan_brackets(text_, scan_);
      if (reach.broken) return CallState::No;
      if (!reach.whole) return at_most();
    }
    at_ = scan_.at + 1;
    out = text_.substr(begin, at_ - begin);
    return CallState::Call;
  }
  // What stands in front of `marker`, of any length; goes behind the marker.
  CallState value(std::string_view marker, std::string_view& out) {
    const size_t found = text_.find(marker, at_);
    if (found == std::string_view::npos) {
      scan_.in_string = true;
      return at_most();
    }
    out = text_.substr(at_, found - at_);
    at_ = found + marker.size();
    return CallState::Call;
  }

 private:
  std::string_view text_;
  size_t at_ = 0;
  bool ended_;
  JsonScan& scan_;
};

// Returns from the enclosing function unless the step is there.
#define KTX_STEP(step)                                                          \
  do {                                                                          \
    if (const CallState state = (step); state != CallState::Call) return state; \
  } while (false)

std::string_view trimmed(std::string_view text) {
  const size_t begin = std::min(text.find_first_not_of(kAsciiSpace), text.size());
  return text.substr(begin, text.find_last_not_of(kAsciiSpace) + 1 - begin);
}

// Discarded where it is no JSON, or nested deeper than we may go.
Json parse_json(std::string_view text) {
  const bool fits =
      json_nesting(text) <= kMaxJsonDepth && json_member_pairs(text) <= kMaxMemberPairs;
  return fits ? Json::parse(text, nullptr, false) : Json(Json::value_t::discarded);
}

// The arguments as JSON text: an object, or a string that holds one; none is {}.
std::optional<std::string> arguments_text(Json arguments) {
  if (arguments.is_string()) {
    arguments = parse_json(arguments.get_ref<const std::string&>());
  }
  if (arguments.is_null()) return "{}";
  if (!arguments.is_object()) return std::nullopt;
  return arguments.dump(-1, ' ', false, Json::error_handler_t::replace);
}

CallState add_call(std::string_view name, std::string_view arguments, std::string_view id,
                   CallRead& read) {
  name = trimmed(name);
  if (name.empty()) return CallState::No;
  std::optional<std::string> text = arguments_text(parse_json(arguments));
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
void note_begun(const Cursor& in, std::string_view name, std::string_view id, CallRead& read) {
  name = trimmed(name);
  if (in.at_end() || in.next() != '{' || name.empty()) return;
  read.begun = true;
  read.name = name;
  read.id = id;
  read.json_at = in.at();
}

// {"name": "f", "arguments": {   as far as it stands so.
CallState peek_head(Cursor in, CallRead& read) {
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

CallState read_hermes(Cursor& in, CallRead& read) {
  std::string_view json;
  KTX_STEP(in.literal("<tool_call>"));
  in.space();
  (void)peek_head(in, read);
  KTX_STEP(in.json(json));
  KTX_STEP(in.closer("</tool_call>"));
  return add_call(parse_json(json), read);
}

bool offered(std::span<const OfferedTool> tools, std::string_view name) {
  return tools.empty() || std::any_of(tools.begin(), tools.end(),
                                      [&](const OfferedTool& tool) { return tool.name == name; });
}

CallState read_llama3(Cursor& in, std::span<const OfferedTool> tools, CallRead& read) {
  bool tagged = false;
  if (!in.at_end() && in.next() == '<') {
    KTX_STEP(in.literal(kPythonTag));
    tagged = true;
    in.space();
  }
  // A JSON answer is told from a call by its first key, not at its end.
  Cursor key = in;
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
  KTX_STEP(add_call(parse_json(json), read));
  return tagged || offered(tools, read.calls.back().name) ? CallState::Call : CallState::No;
}

CallState read_mistral(Cursor& in, CallRead& read) {
  std::string_view json;
  KTX_STEP(in.literal(kToolCalls));
  in.space();
  if (in.at_end()) return in.at_most();
  if (in.next() == '[') {
    KTX_STEP(in.json(json));
    const Json calls = parse_json(json);
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

CallState read_deepseek(Cursor& in, CallRead& read) {
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

CallState read_kimi(Cursor& in, CallRead& read) {
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

// The arguments of a call in XML, put together value by value.
class XmlArguments {
 public:
  XmlArguments(std::string_view name, std::span<const OfferedTool> tools) {
    for (const OfferedTool& tool : tools) {
      if (tool.name == name) tool_ = &tool;
    }
  }
  void add(std::string_view key, std::string_view value) {
    text_ += text_.size() == 1 ? "" : ", ";
    text_ += print(Json(key)) + ": " + print(typed(key, value));
  }
  const std::string& open() const { return text_; }
  std::string whole() const { return text_ + "}"; }

 private:
  static std::string print(const Json& json) {
    return json.dump(-1, ' ', false, Json::error_handler_t::replace);
  }
  Json typed(std::string_view key, std::string_view value) const {
    const bool is_text = tool_ != nullptr && std::count(tool_->text_parameters.begin(),
                                                        tool_->text_parameters.end(), key) > 0;
    if (is_text) return Json(value);
    Json parsed = parse_json(value);
    return parsed.is_discarded() ? Json(value) : parsed;
  }
  const OfferedTool* tool_ = nullptr;
  std::string text_ = "{";
};

CallState end_xml(std::string_view name, const XmlArguments& arguments, CallRead& read) {
  read.calls.push_back({std::string(name), arguments.whole(), ""});
  return CallState::Call;
}

CallState read_glm(Cursor& in, std::span<const OfferedTool> tools, CallRead& read) {
  std::string_view name, key, value;
  KTX_STEP(in.literal("<tool_call>"));
  KTX_STEP(in.until("<", name));
  name = trimmed(name);
  if (name.empty() || name.find_first_of(" \n{\"") != std::string_view::npos) return CallState::No;
  read.name = name;
  XmlArguments arguments(name, tools);
  for (;;) {
    read.arguments = arguments.open();
    in.space();
    const CallState more = in.literal("<arg_key>");
    if (more == CallState::More) return more;
    if (more == CallState::No) break;
    read.begun = true;
    KTX_STEP(in.until("</arg_key>", key));
    KTX_STEP(in.literal("</arg_key>"));
    in.space();
    KTX_STEP(in.literal("<arg_value>"));
    KTX_STEP(in.value("</arg_value>", value));
    arguments.add(trimmed(key), value);
  }
  KTX_STEP(in.closer("</tool_call>"));
  return end_xml(name, arguments, read);
}

CallState read_qwen_coder(Cursor& in, std::span<const OfferedTool> tools, CallRead& read) {
  std::string_view name, key, value;
  if (const CallState wrapped = in.literal("<tool_call>"); wrapped == CallState::More) {
    return wrapped;
  }
  in.space();
  KTX_STEP(in.literal(kFunction));
  KTX_STEP(in.until(">", name));
  KTX_STEP(in.literal(">"));
  name = trimmed(name);
  if (name.empty()) return CallState::No;
  read.begun = true;
  read.name = name;
  XmlArguments arguments(name, tools);
  for (;;) {
    read.arguments = arguments.open();
    in.space();
    const CallState more = in.literal(kParameter);
    if (more == CallState::More) return more;
    if (more == CallState::No) break;
    KTX_STEP(in.until(">", key));
    KTX_STEP(in.literal(">"));
    KTX_STEP(in.value("</parameter>", value));
    // A line of its own for the value.
    if (value.starts_with('\n')) value.remove_prefix(1);
    if (value.ends_with('\n')) value.remove_suffix(1);
    arguments.add(trimmed(key), value);
  }
  KTX_STEP(in.closer("</function>"));
  return end_xml(name, arguments, read);
}

#undef KTX_STEP

}  // namespace

std::span<const std::string_view> call_openers(ToolCallFormat format) {
  switch (format) {
    case ToolCallFormat::None:
      return {};
    case ToolCallFormat::Hermes:
      return kHermesOpeners;
    case ToolCallFormat::Llama3:
      return kLlama3Openers;
    case ToolCallFormat::Mistral:
      return kMistralOpeners;
    case ToolCallFormat::DeepSeek:
      return kDeepSeekOpeners;
    case ToolCallFormat::Kimi:
      return kKimiOpeners;
    case ToolCallFormat::Glm:
      return kHermesOpeners;
    case ToolCallFormat::QwenCoder:
      return kQwenCoderOpeners;
  }
  return {};
}

std::span<const std::string_view> call_trailers(ToolCallFormat format) {
  switch (format) {
    case ToolCallFormat::Llama3:
      return kLlama3Trailers;
    case ToolCallFormat::DeepSeek:
      return kDeepSeekTrailers;
    case ToolCallFormat::Kimi:
      return kKimiTrailers;
    case ToolCallFormat::QwenCoder:
      return kQwenCoderTrailers;
    default:
      return {};
  }
}

CallRead read_tool_call(ToolCallFormat format, std::string_view text, bool ended,
                        std::span<const OfferedTool> tools, JsonScan& scan) {
  CallRead read;
  const bool xml = format == ToolCallFormat::Glm || format == ToolCallFormat::QwenCoder;
  if (xml && !ended && text.size() <= kMaxToolCallBytes) {
    // A value goes on until a tag ends: a long one is not read again and again.
    const bool in_value = std::exchange(scan.in_string, false);
    const size_t from = std::exchange(scan.at, text.size());
    if (in_value && text.find('>', from) == std::string_view::npos) {
      scan.in_string = true;
      read.state = CallState::More;
      return read;
    }
  }
  Cursor in(text, ended, scan);
  switch (format) {
    case ToolCallFormat::None:
      break;
    case ToolCallFormat::Hermes:
      read.state = read_hermes(in, read);
      break;
    case ToolCallFormat::Llama3:
      read.state = read_llama3(in, tools, read);
      break;
    case ToolCallFormat::Mistral:
      read.state = read_mistral(in, read);
      break;
    case ToolCallFormat::DeepSeek:
      read.state = read_deepseek(in, read);
      break;
    case ToolCallFormat::Kimi:
      read.state = read_kimi(in, read);
      break;
    case ToolCallFormat::Glm:
      read.state = read_glm(in, tools, read);
      break;
    case ToolCallFormat::QwenCoder:
      read.state = read_qwen_coder(in, tools, read);
      break;
  }
  read.bytes = in.at();
  const bool too_long = std::max(read.bytes, text.size()) > kMaxToolCallBytes;
  if (too_long && (read.state == CallState::More || read.bytes > kMaxToolCallBytes)) {
    read.state = CallState::No;
  }
  return read;
}

JsonReach reach_of_json(std::string_view text, JsonScan& scan) {
  if (scan.at > 0 && scan.depth == 0) return {scan.at + 1, true, false};
  return scan_brackets(text, scan);
}

}  // namespace ktx::text

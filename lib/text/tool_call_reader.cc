#include "lib/text/tool_call_reader.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

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

constexpr std::string_view kHermesOpeners[] = {"<tool_call>"};
constexpr std::string_view kLlama3Openers[] = {kPythonTag};
constexpr std::string_view kMistralOpeners[] = {kToolCalls};
constexpr std::string_view kDeepSeekOpeners[] = {kCallsBegin, kCallBegin};
constexpr std::string_view kKimiOpeners[] = {kKimiBegin, kKimiCall};
constexpr std::string_view kLlama3Trailers[] = {";"};
constexpr std::string_view kDeepSeekTrailers[] = {kCallsEnd};
constexpr std::string_view kKimiTrailers[] = {kKimiEnd};

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
    const bool found = scan_.at > begin && scan_.depth == 0;  // at an earlier call
    for (; !found && scan_.at < text_.size(); ++scan_.at) {
      const char c = text_[scan_.at];
      if (scan_.escaped) {
        scan_.escaped = false;
      } else if (scan_.in_string) {
        if (c == '\\') scan_.escaped = true;
        if (c == '"') scan_.in_string = false;
      } else if (c == '"') {
        scan_.in_string = true;
      } else if (c == '{' || c == '[') {
        if (++scan_.depth > kMaxJsonDepth) return CallState::No;
      } else if (c == '}' || c == ']') {
        --scan_.depth;
      } else if (kJsonOutsideStrings.find(c) == std::string_view::npos) {
        return CallState::No;  // at once, so that nothing long is held back in vain
      }
      if (scan_.depth == 0) break;
    }
    if (scan_.at == text_.size()) return at_most();
    at_ = scan_.at + 1;
    out = text_.substr(begin, at_ - begin);
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

// The arguments as JSON text: an object, or a string that holds one; none is {}.
std::optional<std::string> arguments_text(Json arguments) {
  if (arguments.is_string()) {
    arguments = Json::parse(arguments.get_ref<const std::string&>(), nullptr, false);
  }
  if (arguments.is_null()) return "{}";
  if (!arguments.is_object()) return std::nullopt;
  return arguments.dump(-1, ' ', false, Json::error_handler_t::replace);
}

CallState add_call(std::string_view name, std::string_view arguments, std::string_view id,
                   CallRead& read) {
  name = trimmed(name);
  if (name.empty()) return CallState::No;
  std::optional<std::string> text = arguments_text(Json::parse(arguments, nullptr, false));
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

CallState read_hermes(Cursor& in, CallRead& read) {
  std::string_view json;
  KTX_STEP(in.literal("<tool_call>"));
  in.space();
  KTX_STEP(in.json(json));
  KTX_STEP(in.closer("</tool_call>"));
  return add_call(Json::parse(json, nullptr, false), read);
}

CallState read_llama3(Cursor& in, std::span<const std::string> names, CallRead& read) {
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
  KTX_STEP(in.json(json));
  KTX_STEP(add_call(Json::parse(json, nullptr, false), read));
  const bool offered =
      names.empty() || std::find(names.begin(), names.end(), read.calls.back().name) != names.end();
  return tagged || offered ? CallState::Call : CallState::No;
}

CallState read_mistral(Cursor& in, CallRead& read) {
  std::string_view json;
  KTX_STEP(in.literal(kToolCalls));
  in.space();
  if (in.at_end()) return in.at_most();
  if (in.next() == '[') {
    KTX_STEP(in.json(json));
    const Json calls = Json::parse(json, nullptr, false);
    if (!calls.is_array() || calls.empty()) return CallState::No;
    for (const Json& call : calls) KTX_STEP(add_call(call, read));
    return CallState::Call;
  }
  std::string_view head;
  KTX_STEP(in.until("{", head));
  KTX_STEP(in.json(json));
  std::string_view id;
  head = head.substr(0, head.find("[ARGS]"));
  if (const size_t mark = head.find("[CALL_ID]"); mark != std::string_view::npos) {
    id = trimmed(head.substr(mark + 9));
    head = head.substr(0, mark);
  }
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
  KTX_STEP(in.json(json));
  KTX_STEP(in.closer(kKimiCallEnd));
  id = trimmed(id);
  std::string_view name = id.substr(0, id.rfind(':'));  // functions.NAME:0
  if (name.starts_with("functions.")) name.remove_prefix(10);
  return add_call(name, json, id, read);
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
    default:
      return {};
  }
}

CallRead read_tool_call(ToolCallFormat format, std::string_view text, bool ended,
                        std::span<const std::string> names, JsonScan& scan) {
  CallRead read;
  Cursor in(text, ended, scan);
  switch (format) {
    case ToolCallFormat::None:
      break;
    case ToolCallFormat::Hermes:
      read.state = read_hermes(in, read);
      break;
    case ToolCallFormat::Llama3:
      read.state = read_llama3(in, names, read);
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
  }
  read.bytes = in.at();
  const bool too_long = std::max(read.bytes, text.size()) > kMaxToolCallBytes;
  if (too_long && (read.state == CallState::More || read.bytes > kMaxToolCallBytes)) {
    read.state = CallState::No;
  }
  return read;
}

}  // namespace ktx::text

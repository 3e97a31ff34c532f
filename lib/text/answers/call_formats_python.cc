// Tool calls of LFM2: a list of Python calls, whose arguments become JSON.
//
//   <|tool_call_start|>[f(city='Paris', days=[1, 2]), g()]<|tool_call_end|>
//     ->  f {"city": "Paris", "days": [1, 2]}   g {}
//
// Templates put quotes around a text as it is: a quote ends one only where a comma or a bracket
// follows. Some templates ask for a list of JSON objects instead, which is read, too.
#include "lib/text/answers/call_formats.h"
#include "lib/text/answers/partial_match.h"

namespace ktx::text {
namespace {

class PythonCalls {
 public:
  explicit PythonCalls(std::string_view text) : text_(text) {}

  // False where the text is no such list, or goes on behind it.
  bool read(std::vector<ToolCall>& calls) {
    const bool listed = take('[');
    do {
      if (calls.size() > kMostCalls || !call(calls)) return false;
    } while (take(','));
    if (listed && !take(']')) return false;
    return at_end();
  }

 private:
  static constexpr size_t kMostCalls = 256;

  bool at_end() {
    at_ = std::min(text_.find_first_not_of(kAsciiSpace, at_), text_.size());
    return at_ == text_.size();
  }
  bool take(char wanted) {
    if (at_end() || text_[at_] != wanted) return false;
    ++at_;
    return true;
  }

  // f(a=1, b='x'), written as {a: 1, b: "x"} and mended.
  bool call(std::vector<ToolCall>& calls) {
    std::string_view name;
    if (!word('(', name)) return false;
    std::string object = "{";
    bool first = true;
    while (!take(')')) {
      if (!first && !take(',')) return false;
      if (!first && take(')')) break;
      std::string_view key;
      if (!word('=', key)) return false;
      if (!first) object += ", ";
      object.append("\"").append(key).append("\": ");
      if (!value(object)) return false;
      first = false;
    }
    object += '}';
    CallJson json;
    if (json.read(object) != CallJson::State::Whole || json.at() != object.size()) return false;
    calls.push_back({std::string(name), json.json(), ""});
    return true;
  }

  // A name, and the character behind it.
  bool word(char behind, std::string_view& out) {
    const size_t end = text_.find(behind, at_);
    if (end == std::string_view::npos || end - at_ > kMaxToolNameBytes) return false;
    out = trimmed(text_.substr(at_, end - at_));
    at_ = end + 1;
    return !out.empty() && out.find_first_of(" \t\r\n\"'\\,()[]{}") == std::string_view::npos;
  }

  // Up to the comma or the bracket behind it.
  bool value(std::string& out) {
    std::string open;  // brackets
    while (!at_end()) {
      const char c = text_[at_];
      if (open.empty() && (c == ',' || c == ')')) return true;
      if (c == '"' || c == '\'') {
        if (!quoted(out)) return false;
        continue;
      }
      if (c == '[' || c == '{') open += c;
      if (c == ']' || c == '}') {
        if (open.empty()) return false;
        open.pop_back();
      }
      out += c;
      ++at_;
      if (at_ < text_.size() && kAsciiSpace.find(text_[at_]) != std::string_view::npos) out += ' ';
    }
    return false;
  }

  // Written in JSON's quotes, with the escapes as they are.
  bool quoted(std::string& out) {
    const char quote = text_[at_++];
    out += '"';
    for (; at_ < text_.size(); ++at_) {
      const char c = text_[at_];
      if (c == quote && ends_text(at_ + 1)) {
        ++at_;
        out += '"';
        return true;
      }
      if (c == '\\' && at_ + 1 < text_.size()) {
        ++at_;
        if (text_[at_] != '\'') out += '\\';
        out += text_[at_];
      } else {
        if (c == '"') out += '\\';
        out += c;
      }
    }
    return false;
  }
  bool ends_text(size_t at) const {
    at = std::min(text_.find_first_not_of(kAsciiSpace, at), text_.size());
    return at == text_.size() || std::string_view(",:)]}").find(text_[at]) != text_.npos;
  }

  std::string_view text_;
  size_t at_ = 0;
};

}  // namespace

CallState read_python(CallCursor& in, std::span<const OfferedTool>, CallRead& read) {
  std::string_view body;
  KTX_STEP(in.opener(kPythonCalls));
  if (const CallState closed = in.value(kPythonCallsEnd, body); closed != CallState::Call) {
    if (closed == CallState::More) return closed;
    body = in.to_end();
  }
  body = trimmed(body);
  if (body.starts_with("[{") || body.starts_with('{')) {
    CallJson json;
    if (json.read(body) != CallJson::State::Whole || json.at() != body.size()) return CallState::No;
    return add_calls(parse_call_json(json.json()), read);
  }
  return PythonCalls(body).read(read.calls) ? CallState::Call : CallState::No;
}

}  // namespace ktx::text

#include "lib/text/answers/call_json.h"

#include <fmt/format.h>

#include <algorithm>

#include "lib/text/answers/partial_match.h"

namespace ktx::text {
namespace {

constexpr size_t kMaxWordBytes = 4096;
constexpr std::string_view kHexDigits = "0123456789abcdefABCDEF";

struct WordRow {
  std::string_view said, json;
};
constexpr WordRow kWords[] = {
    {"true", "true"}, {"false", "false"}, {"null", "null"},   {"True", "true"}, {"False", "false"},
    {"None", "null"}, {"TRUE", "true"},   {"FALSE", "false"}, {"NULL", "null"}, {"NONE", "null"}};

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool is_word(char c) {
  return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '-' ||
         c == '+' || c == '.';
}
bool is_space(char c) {
  return kAsciiSpace.find(c) != std::string_view::npos;
}

// -?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?
bool is_number(std::string_view text) {
  const auto digits = [&] {
    const size_t count = std::min(text.find_first_not_of("0123456789"), text.size());
    text.remove_prefix(count);
    return count;
  };
  if (text.starts_with('-')) text.remove_prefix(1);
  if (text.starts_with('0')) {
    text.remove_prefix(1);
  } else if (digits() == 0) {
    return false;
  }
  if (text.starts_with('.')) {
    text.remove_prefix(1);
    if (digits() == 0) return false;
  }
  if (text.starts_with('e') || text.starts_with('E')) {
    text.remove_prefix(1);
    if (text.starts_with('+') || text.starts_with('-')) text.remove_prefix(1);
    if (digits() == 0) return false;
  }
  return text.empty();
}

}  // namespace

std::string json_of_word(std::string_view word) {
  for (const WordRow& row : kWords) {
    if (row.said == word) return std::string(row.json);
  }
  // Python's +5 and 1_000.
  if (word.starts_with('+') && !word.starts_with("+-")) word.remove_prefix(1);
  std::string number(word);
  if (!number.starts_with('_') && !number.ends_with('_')) std::erase(number, '_');
  return is_number(number) ? number : "";
}

void JsonPlace::step(char c) {
  if (in_string) {
    in_string = c != '"' || escaped;
    escaped = c == '\\' && !escaped;
  } else if (c == '"') {
    in_string = true;
  } else if (c == '{' || c == '[') {
    ++depth;
  } else if (c == '}' || c == ']') {
    --depth;
  }
}

std::string compact_json(std::string_view json) {
  std::string out;
  JsonPlace place;
  for (const char c : json) {
    if (!place.in_string && is_space(c)) continue;
    place.step(c);
    out += c;
  }
  return out;
}

bool CallJson::expects_value() const {
  return expect_ == Expect::Value || expect_ == Expect::FirstItem || expect_ == Expect::NextItem;
}

// What was held in front of a key or an item is no trailing comma.
void CallJson::begin_item() {
  out_ += held_;
  held_.clear();
}

void CallJson::write(char c) {
  const auto byte = static_cast<unsigned char>(c);
  constexpr std::string_view kNamed = "\n\r\t\b\f", kNames = "nrtbf";
  const size_t named = kNamed.find(c);
  if (c == '"' || c == '\\') {
    out_ += {'\\', c};
  } else if (named != std::string_view::npos) {
    out_ += {'\\', kNames[named]};
  } else if (byte < 0x20) {
    out_ += fmt::format("\\u{:04x}", byte);
  } else {
    out_ += c;
  }
}

void CallJson::step_string(char c) {
  if (!escape_.empty()) {
    escape_ += c;
    const char kind = escape_[1];
    const size_t digits = kind == 'u' ? 4 : kind == 'x' ? 2 : 0;
    if (digits > 0) {
      const bool hex = escape_.size() == 2 || kHexDigits.find(c) != std::string_view::npos;
      if (hex && escape_.size() < 2 + digits) return;
      const std::string said = std::move(escape_);
      escape_.clear();
      if (hex) {
        out_ += (kind == 'u' ? "\\u" : "\\u00") + said.substr(2);
        return;
      }
      // A backslash that escapes nothing.
      write('\\');
      for (const char digit : said.substr(1, said.size() - 2)) write(digit);
      step_string(c);
      return;
    }
    escape_.clear();
    if (std::string_view("\"\\/bfnrt").find(kind) != std::string_view::npos) {
      out_ += {'\\', kind};
    } else if (kind == '\'') {
      out_ += kind;
    } else {
      write('\\');
      write(kind);
    }
    return;
  }
  if (c == '\\') {
    escape_ = c;
  } else if (c == quote_) {
    out_ += '"';
    quote_ = 0;
    expect_ = key_ ? Expect::Colon : Expect::Comma;
  } else {
    write(c);
  }
}

bool CallJson::open(char bracket) {
  if (!expects_value() || open_.size() >= kMaxCallJsonDepth) return false;
  begin_item();
  out_ += bracket;
  open_ += bracket;
  expect_ = bracket == '{' ? Expect::FirstKey : Expect::FirstItem;
  return true;
}

// Closes the innermost bracket of that kind, and those within it that lack theirs.
bool CallJson::shut(char bracket) {
  const bool complete = expect_ != Expect::Value && expect_ != Expect::Colon;
  const size_t mate = open_.rfind(bracket == '}' ? '{' : '[');
  if (!complete || mate == std::string::npos) return false;
  held_.clear();
  while (open_.size() > mate) {
    out_ += open_.back() == '{' ? '}' : ']';
    open_.pop_back();
  }
  end_value();
  return true;
}

bool CallJson::end_word() {
  const std::string word = std::move(word_);
  word_.clear();
  if (expects_key()) {
    begin_item();
    out_ += '"' + word + '"';
    expect_ = Expect::Colon;
    return true;
  }
  const std::string json = json_of_word(word);
  if (json.empty()) return false;
  begin_item();
  out_ += json;
  end_value();
  return true;
}

bool CallJson::step_outside(char c) {
  if (is_word(c)) {
    if (!expects_value() && !expects_key()) return false;
    word_ += c;
    return word_.size() <= kMaxWordBytes;
  }
  if (!word_.empty() && !end_word()) return false;
  if (is_space(c)) {
    (held_.empty() ? out_ : held_) += c;
    return true;
  }
  switch (c) {
    case '{':
    case '[':
      return open(c);
    case '}':
    case ']':
      return shut(c);
    case '"':
    case '\'':
      // A comma is missing in front of a key. (Two strings of a list are one in Python.)
      if (expect_ == Expect::Comma && open_.ends_with('{') && is_space(out_.back())) {
        held_ = ',';
        expect_ = Expect::NextKey;
      }
      if (!expects_value() && !expects_key()) return false;
      key_ = expects_key();
      begin_item();
      out_ += '"';
      quote_ = c;
      return true;
    case ':':
      if (expect_ != Expect::Colon) return false;
      out_ += c;
      expect_ = Expect::Value;
      return true;
    case ',':
      if (expect_ != Expect::Comma || open_.empty()) return false;
      held_ = c;
      expect_ = open_.back() == '{' ? Expect::NextKey : Expect::NextItem;
      return true;
    default:
      return false;
  }
}

bool CallJson::step(char c) {
  if (quote_ == 0) return step_outside(c);
  step_string(c);
  return true;
}

CallJson::State CallJson::read(std::string_view text) {
  while (state_ == State::More && at_ < text.size()) {
    if (!step(text[at_])) {
      state_ = State::Stopped;
      break;
    }
    ++at_;
    if (open_.empty() && quote_ == 0 && expect_ == Expect::Comma) state_ = State::Whole;
  }
  return state_;
}

bool CallJson::close() {
  if (state_ == State::Whole) return true;
  if (quote_ != 0 || open_.empty()) return false;
  CallJson closed = *this;
  if (!closed.word_.empty() && (closed.expects_key() || !closed.end_word())) return false;
  if (!closed.shut(closed.open_.front() == '{' ? '}' : ']')) return false;
  while (!closed.open_.empty()) {
    if (!closed.shut(closed.open_.front() == '{' ? '}' : ']')) return false;
  }
  closed.state_ = State::Whole;
  *this = std::move(closed);
  return true;
}

}  // namespace ktx::text

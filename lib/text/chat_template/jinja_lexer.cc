#include "lib/text/chat_template/jinja_lexer.h"

#include <fmt/format.h>

#include <array>

#include "lib/support/strings.h"
#include "lib/text/chat_template/unicode_text.h"

namespace ktx::text::jinja {
namespace {

// Two characters first: the longest match wins.
constexpr std::array<std::string_view, 27> kOperatorTexts = {
    "//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[", "]",
    "(",  ")",  "{",  "}",  ">",  "<",  "=", ".", ":", "|", ",", ";", "!"};

std::string normalize_newlines(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      out += source[i];
      continue;
    }
    out += '\n';
    if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

bool is_digit_char(char c) {
  return c >= '0' && c <= '9';
}

class Lexer {
 public:
  explicit Lexer(std::string source) : source_(std::move(source)) {}

  Result<std::vector<Token>> run() {
    while (at_ < source_.size()) KTX_TRY(lex_root());
    push(TokenKind::End, "");
    return std::move(tokens_);
  }

 private:
  // Text up to the next tag, then that tag.
  Status lex_root() {
    const std::string_view source = source_;
    size_t tag = source.find('{', at_);
    while (tag != std::string_view::npos &&
           (tag + 1 >= source.size() ||
            std::string_view("{%#").find(source[tag + 1]) == std::string_view::npos)) {
      tag = source.find('{', tag + 1);
    }
    if (tag == std::string_view::npos) {
      push_text(source.substr(at_));
      advance_to(source.size());
      return {};
    }
    const char type = source[tag + 1];
    size_t after = tag + 2;
    char sign = 0;
    if (after < source.size() && (source[after] == '-' || source[after] == '+')) {
      sign = source[after++];
    }
    std::string_view text = source.substr(at_, tag - at_);
    if (sign == '-') {
      text = strip_space(text, Side::Right);
    } else if (sign != '+' && type != '{') {
      const size_t line = text.rfind('\n') + 1;  // npos + 1 = 0
      if ((line > 0 || line_starting_) && is_space_text(text.substr(line))) {
        text = text.substr(0, line);
      }
    }
    push_text(text);
    advance_to(tag);
    const Loc tag_loc = loc_;
    line_starting_ = false;
    if (type == '#') return lex_comment(after, tag_loc);
    if (type == '{') {
      push(TokenKind::VariableBegin, "{{");
      advance_to(after);
      return lex_tag("}}", TokenKind::VariableEnd, tag_loc);
    }
    if (const size_t end = raw_tag_end(after, "raw", false); end != 0) {
      advance_to(end);
      return lex_raw(tag_loc);
    }
    push(TokenKind::BlockBegin, "{%");
    advance_to(after);
    return lex_tag("%}", TokenKind::BlockEnd, tag_loc);
  }

  Status lex_comment(size_t from, Loc tag_loc) {
    const size_t end = source_.find("#}", from);
    if (end == std::string::npos) return error_at(tag_loc, "the comment is not closed; add `#}`");
    size_t after = end + 2;
    if (end > from && source_[end - 1] == '-') {
      after = skip_space(after);
    } else if (!(end > from && source_[end - 1] == '+') && after < source_.size() &&
               source_[after] == '\n') {
      ++after;
    }
    finish_tag(after);
    return {};
  }

  // The end of `{% raw %}` or `{% endraw %}` whose name starts at or after
  // `from`, or 0 when it is another tag.
  size_t raw_tag_end(size_t from, std::string_view name, bool is_end) const {
    size_t at = skip_space(from);
    if (source_.compare(at, name.size(), name) != 0) return 0;
    at = skip_space(at + name.size());
    if (source_.compare(at, 3, "-%}") == 0) return skip_space(at + 3);
    if (is_end && source_.compare(at, 3, "+%}") == 0) return at + 3;
    if (source_.compare(at, 2, "%}") != 0) return 0;
    at += 2;
    return is_end && at < source_.size() && source_[at] == '\n' ? at + 1 : at;
  }

  Status lex_raw(Loc tag_loc) {
    line_starting_ = at_ > 0 && source_[at_ - 1] == '\n';
    for (size_t tag = source_.find("{%", at_); tag != std::string::npos;
         tag = source_.find("{%", tag + 1)) {
      size_t after = tag + 2;
      char sign = 0;
      if (after < source_.size() && (source_[after] == '-' || source_[after] == '+')) {
        sign = source_[after++];
      }
      const size_t end = raw_tag_end(after, "endraw", true);
      if (end == 0) continue;
      std::string_view text = std::string_view(source_).substr(at_, tag - at_);
      if (sign == '-') {
        text = strip_space(text, Side::Right);
      } else if (sign != '+') {
        const size_t line = text.rfind('\n') + 1;
        if ((line > 0 || line_starting_) && is_space_text(text.substr(line))) {
          text = text.substr(0, line);
        }
      }
      push_text(text);
      finish_tag(end);
      return {};
    }
    return error_at(tag_loc, "the raw block is not closed; add `{% endraw %}`");
  }

  Status lex_tag(std::string_view closer, TokenKind end_kind, Loc tag_loc) {
    std::string open;  // brackets that wait for their closing
    while (true) {
      const size_t start = skip_space(at_);
      advance_to(start);
      if (at_ >= source_.size()) {
        return error_at(tag_loc, fmt::format("the tag is not closed; add `{}`", closer));
      }
      const std::string_view rest = std::string_view(source_).substr(at_);
      if (open.empty()) {
        const bool strips = rest[0] == '-' && rest.substr(1, 2) == closer;
        const bool keeps = rest[0] == '+' && closer == "%}" && rest.substr(1, 2) == closer;
        if (strips || keeps || rest.substr(0, 2) == closer) {
          push(end_kind, std::string(closer));
          size_t after = at_ + (strips || keeps ? 3 : 2);
          if (strips) {
            after = skip_space(after);
          } else if (!keeps && closer == "%}" && after < source_.size() && source_[after] == '\n') {
            ++after;
          }
          finish_tag(after);
          return {};
        }
      }
      KTX_TRY(lex_token(rest, open));
    }
  }

  Status lex_token(std::string_view rest, std::string& open) {
    const char c = rest[0];
    if (c == '\'' || c == '"') return lex_string(rest);
    if (is_digit_char(c)) return lex_number(rest);
    size_t bytes = 0;
    if (is_word(decode_code_point(rest, &bytes))) {
      size_t length = 0;
      while (length < rest.size() && is_word(decode_code_point(rest.substr(length), &bytes))) {
        length += bytes;
      }
      push(TokenKind::Name, std::string(rest.substr(0, length)));
      advance_to(at_ + length);
      return {};
    }
    for (const std::string_view op : kOperatorTexts) {
      if (rest.substr(0, op.size()) != op) continue;
      if (op == "(" || op == "[" || op == "{") {
        open += op == "(" ? ')' : op == "[" ? ']' : '}';
      } else if (op == ")" || op == "]" || op == "}") {
        if (open.empty()) return error_at(loc_, fmt::format("unexpected '{}'", op));
        if (open.back() != op[0]) {
          return error_at(loc_, fmt::format("unexpected '{}', expected '{}'", op, open.back()));
        }
        open.pop_back();
      }
      push(TokenKind::Operator, std::string(op));
      advance_to(at_ + op.size());
      return {};
    }
    return error_at(loc_, fmt::format("unexpected character '{}'",
                                      printable(rest.substr(0, code_point_bytes(rest)))));
  }

  Status lex_string(std::string_view rest) {
    std::string value;
    for (size_t i = 1; i < rest.size(); ++i) {
      if (rest[i] == rest[0]) {
        push(TokenKind::String, std::move(value));
        advance_to(at_ + i + 1);
        return {};
      }
      if (rest[i] != '\\' || i + 1 >= rest.size()) {
        value += rest[i];
        continue;
      }
      KTX_TRY(unescape(rest, ++i, value));
    }
    return error_at(loc_, "the string is not closed");
  }

  // Python's escapes; `i` is at the character after the backslash and ends at
  // the last character used. An unknown one stays as it is, backslash included.
  Status unescape(std::string_view rest, size_t& i, std::string& value) {
    static constexpr std::string_view kFrom = "ntr\\'\"abfv";
    static constexpr std::string_view kTo = "\n\t\r\\'\"\a\b\f\v";
    const char c = rest[i];
    if (const size_t simple = kFrom.find(c); simple != std::string_view::npos) {
      value += kTo[simple];
    } else if (c == '\n') {
      // a line continued: nothing
    } else if (c >= '0' && c <= '7') {
      char32_t code = 0;
      size_t digits = 0;
      for (; digits < 3 && i + digits < rest.size() && rest[i + digits] >= '0' &&
             rest[i + digits] <= '7';
           ++digits) {
        code = code * 8 + static_cast<char32_t>(rest[i + digits] - '0');
      }
      i += digits - 1;
      append_code_point(value, code);
    } else if (c == 'x' || c == 'u' || c == 'U') {
      const size_t count = c == 'x' ? 2 : c == 'u' ? 4 : 8;
      char32_t code = 0;
      for (size_t k = 1; k <= count; ++k) {
        const char digit = i + k < rest.size() ? rest[i + k] : '\0';
        const int v = digit >= '0' && digit <= '9'   ? digit - '0'
                      : digit >= 'a' && digit <= 'f' ? digit - 'a' + 10
                      : digit >= 'A' && digit <= 'F' ? digit - 'A' + 10
                                                     : -1;
        if (v < 0) return error_at(loc_, fmt::format("'\\{}' needs {} hex digits", c, count));
        code = code * 16 + static_cast<char32_t>(v);
      }
      i += count;
      if (code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) {
        return error_at(loc_, fmt::format("'\\{}{:0{}x}' is no character", c,
                                          static_cast<uint32_t>(code), count));
      }
      append_code_point(value, code);
    } else if (c == 'N') {
      return error_at(loc_, "'\\N{…}' is not supported; write the character or '\\u…'");
    } else {
      value += '\\';
      value += c;
    }
    return {};
  }

  Status lex_number(std::string_view rest) {
    // Digits with single underscores between them.
    const auto digits = [&](size_t from) {
      size_t end = from;
      while (end < rest.size() &&
             (is_digit_char(rest[end]) ||
              (rest[end] == '_' && end > from && is_digit_char(rest[end - 1]) &&
               end + 1 < rest.size() && is_digit_char(rest[end + 1])))) {
        ++end;
      }
      return end;
    };
    size_t end = digits(0);
    bool is_float = false;
    if (at_ == 0 || source_[at_ - 1] != '.') {
      size_t fraction = end;
      if (end + 1 < rest.size() && rest[end] == '.' && is_digit_char(rest[end + 1])) {
        fraction = digits(end + 1);
        is_float = true;
      }
      if (fraction < rest.size() && (rest[fraction] == 'e' || rest[fraction] == 'E')) {
        size_t exponent = fraction + 1;
        if (exponent < rest.size() && (rest[exponent] == '+' || rest[exponent] == '-')) ++exponent;
        if (exponent < rest.size() && is_digit_char(rest[exponent])) {
          fraction = digits(exponent);
          is_float = true;
        }
      }
      if (is_float) end = fraction;
    }
    if (!is_float && rest[0] == '0' && rest.size() > 2) {
      const char base = static_cast<char>(rest[1] | 0x20);
      const std::string_view allowed = base == 'x'   ? "0123456789abcdefABCDEF"
                                       : base == 'o' ? "01234567"
                                       : base == 'b' ? "01"
                                                     : "";
      const size_t stop = rest.find_first_not_of(std::string(allowed) + "_", 2);
      const size_t last = stop == std::string_view::npos ? rest.size() : stop;
      if (!allowed.empty() && last > 2) end = last;
    }
    std::string text;
    for (const char c : rest.substr(0, end)) {
      if (c != '_') text += c;
    }
    push(is_float ? TokenKind::Float : TokenKind::Integer, std::move(text));
    advance_to(at_ + end);
    return {};
  }

  size_t skip_space(size_t at) const {
    const std::string_view source = source_;
    while (at < source.size()) {
      size_t bytes = 0;
      if (!is_python_space(decode_code_point(source.substr(at), &bytes))) break;
      at += bytes;
    }
    return at;
  }

  void finish_tag(size_t after) {
    advance_to(after);
    line_starting_ = at_ > 0 && source_[at_ - 1] == '\n';
  }

  void push_text(std::string_view text) {
    if (!text.empty()) push(TokenKind::Text, std::string(text));
  }
  void push(TokenKind kind, std::string text) { tokens_.push_back({kind, loc_, std::move(text)}); }

  void advance_to(size_t to) {
    for (; at_ < to; ++at_) {
      if (source_[at_] == '\n') {
        ++loc_.line;
        loc_.column = 1;
      } else if ((static_cast<unsigned char>(source_[at_]) & 0xC0) != 0x80) {
        ++loc_.column;
      }
    }
  }

  const std::string source_;
  size_t at_ = 0;
  Loc loc_;
  bool line_starting_ = true;
  std::vector<Token> tokens_;
};

}  // namespace

Error error_at(Loc loc, std::string_view message) {
  return Error{fmt::format("chat template:{}:{}: {}", loc.line, loc.column, message)};
}

Result<std::vector<Token>> lex(std::string_view source) {
  if (static_cast<int64_t>(source.size()) > kMaxTemplateBytes) {
    return Error{fmt::format("chat template: {} bytes are more than the {} that are accepted",
                             source.size(), kMaxTemplateBytes)};
  }
  return Lexer(normalize_newlines(source)).run();
}

}  // namespace ktx::text::jinja

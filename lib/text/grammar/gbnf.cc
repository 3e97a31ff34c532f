#include "lib/text/grammar/gbnf.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <string>
#include <unordered_map>

#include "lib/support/strings.h"
#include "lib/text/utf8.h"

namespace ktx::text::grammar {
namespace {

constexpr std::string_view kNameBytes =
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_";

struct GbnfEscape {
  char name;
  uint32_t code;
};
constexpr GbnfEscape kGbnfEscapes[] = {{'n', '\n'},  {'r', '\r'}, {'t', '\t'},
                                       {'\\', '\\'}, {'"', '"'},  {'[', '['},
                                       {']', ']'},   {'-', '-'},  {'^', '^'}};
struct HexRow {
  char name;
  int digits;
};
constexpr HexRow kHexEscapes[] = {{'x', 2}, {'u', 4}, {'U', 8}};

class GbnfParser {
 public:
  GbnfParser(std::string_view text, const GbnfTokens& tokens) : text_(text), tokens_(tokens) {}

  Result<GrammarRules> parse() {
    if (text_.size() > kMaxGbnfBytes) {
      return Error{fmt::format("the grammar has {} bytes; at most {} are allowed", text_.size(),
                               kMaxGbnfBytes)};
    }
    space();
    while (at_ < text_.size()) {
      const size_t begin = at_;
      const std::string_view name = read_name();
      if (name.empty()) return error("expected a rule name");
      space();
      if (!take("::=")) return error("expected '::=' behind the rule name");
      const int rule = rule_of(name);
      if (rules_.rules[rule].expr >= 0) {
        at_ = begin;
        return error(fmt::format("rule '{}' is defined twice", name));
      }
      space();
      rules_.set_rule(rule, KTX_TRY(alternatives(0)));
      if (at_ < text_.size() && !at_rule()) return error("expected an expression");
    }
    const auto root = index_.find("root");
    if (root == index_.end()) return Error{"grammar: no rule 'root'"};
    rules_.root = root->second;
    for (const auto& [name, place] : used_) {
      if (rules_.rules[index_.at(name)].expr < 0) {
        at_ = place;
        return error(fmt::format("rule '{}' is not defined", name));
      }
    }
    return std::move(rules_);
  }

 private:
  Error error(std::string_view what) const {
    const std::string_view before = text_.substr(0, at_);
    const auto line = 1 + std::count(before.begin(), before.end(), '\n');
    const size_t line_begin = before.rfind('\n') + 1;  // npos + 1 is 0
    std::string found;
    if (at_ >= text_.size()) {
      found = "the end";
    } else {
      found = "'" + printable(text_.substr(at_, 12)) + "'";
    }
    return Error{
        fmt::format("grammar:{}:{}: {}, found {}", line, at_ - line_begin + 1, what, found)};
  }
  void space() {
    while (at_ < text_.size()) {
      if (text_[at_] == '#') {
        at_ = std::min(text_.find('\n', at_), text_.size());
      } else if (std::string_view(" \t\r\n").find(text_[at_]) != std::string_view::npos) {
        ++at_;
      } else {
        return;
      }
    }
  }
  bool take(std::string_view wanted) {
    if (!text_.substr(at_).starts_with(wanted)) return false;
    at_ += wanted.size();
    return true;
  }
  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  std::string_view read_name() {
    const size_t end = std::min(text_.find_first_not_of(kNameBytes, at_), text_.size());
    const std::string_view name = text_.substr(at_, end - at_);
    at_ = end;
    return name;
  }
  // `name ::=` stands here: the rule before it is over.
  bool at_rule() const {
    GbnfParser ahead(text_, tokens_);
    ahead.at_ = at_;
    if (ahead.read_name().empty()) return false;
    ahead.space();
    return ahead.take("::=");
  }
  int rule_of(std::string_view name) {
    const auto [found, added] = index_.try_emplace(std::string(name), 0);
    if (added) found->second = rules_.add_rule(name);
    return found->second;
  }

  Result<int> alternatives(int depth) {
    if (depth > kMaxGbnfDepth) {
      return error(fmt::format("groups are nested deeper than {}", kMaxGbnfDepth));
    }
    std::vector<int> parts = {KTX_TRY(sequence(depth))};
    while (take("|")) {
      space();
      parts.push_back(KTX_TRY(sequence(depth)));
    }
    return rules_.alternatives(std::move(parts));
  }

  Result<int> sequence(int depth) {
    std::vector<int> parts;
    while (at_ < text_.size() && peek() != '|' && peek() != ')' && !at_rule()) {
      int part = KTX_TRY(primary(depth));
      space();
      while (const int repeated = KTX_TRY(repetition(part))) {
        if (repeated == part) break;
        part = repeated;
        space();
      }
      parts.push_back(part);
    }
    return parts.empty() ? rules_.text("") : rules_.sequence(std::move(parts));
  }

  Result<int> primary(int depth) {
    if (take("\"")) return literal();
    if (take("[")) return char_class();
    if (take(".")) return rules_.one_of(complement({}));
    if (peek() == '<' || text_.substr(at_).starts_with("!<")) return token();
    if (take("(")) {
      space();
      const int inner = KTX_TRY(alternatives(depth + 1));
      if (!take(")")) return error("expected ')'");
      return inner;
    }
    const size_t begin = at_;
    const std::string_view name = read_name();
    if (name.empty()) return error("expected a literal, a class, a token, a group or a rule name");
    used_.try_emplace(std::string(name), begin);
    return rules_.rule(rule_of(name));
  }

  // The part itself where no repetition stands behind it.
  Result<int> repetition(int part) {
    if (take("*")) return rules_.repeat(part, 0, kNoLimit);
    if (take("+")) return rules_.repeat(part, 1, kNoLimit);
    if (take("?")) return rules_.optional(part);
    if (!take("{")) return part;
    space();
    const int min = KTX_TRY(number());
    int max = min;
    space();
    if (take(",")) {
      space();
      max = peek() == '}' ? kNoLimit : KTX_TRY(number());
      space();
    }
    if (!take("}")) return error("expected '}'");
    if (max != kNoLimit && max < min) return error("a repetition ends below its begin");
    return rules_.repeat(part, min, max);
  }
  Result<int> number() {
    int value = -1;
    const auto [end, status] =
        std::from_chars(text_.data() + at_, text_.data() + text_.size(), value);
    if (status != std::errc() || value < 0 || value > kMaxRepetitions) {
      return error(fmt::format("expected a number from 0 to {}", kMaxRepetitions));
    }
    at_ = static_cast<size_t>(end - text_.data());
    return value;
  }

  Result<int> token() {
    const size_t begin = at_;
    const bool others = take("!");
    const size_t end = text_.find('>', at_);
    const auto fail = [&](std::string_view what) {
      at_ = begin;
      return error(what);
    };
    if (end == std::string_view::npos) return fail("the token has no closing '>'");
    const std::string_view name = text_.substr(at_, end + 1 - at_);
    int64_t id = -1;
    if (name.starts_with("<[") && name.ends_with("]>")) {
      const std::string_view number = name.substr(2, name.size() - 4);
      const auto [stop, status] = std::from_chars(number.data(), number.data() + number.size(), id);
      if (status != std::errc() || stop != number.data() + number.size() || id < 0 ||
          id >= tokens_.count) {
        return fail(fmt::format("expected the number of a token, 0 to {}", tokens_.count - 1));
      }
    } else {
      const std::optional<int32_t> found = tokens_.find(name);
      if (!found) {
        return fail("no token has exactly this text; <[NUMBER]> names one by its number");
      }
      id = *found;
    }
    if (!others && tokens_.is_end(static_cast<int32_t>(id))) {
      return fail("this token ends the answer and cannot be a part of it");
    }
    at_ = end + 1;
    return rules_.token(static_cast<int32_t>(id), others);
  }

  Result<int> literal() {
    std::string bytes;
    while (peek() != '"') {
      if (at_ >= text_.size()) return error("the literal has no closing '\"'");
      append_utf8(KTX_TRY(character()), bytes);
    }
    ++at_;
    return rules_.text(bytes);
  }
  Result<int> char_class() {
    const bool others = take("^");
    std::vector<CodeRange> ranges;
    while (peek() != ']') {
      if (at_ >= text_.size()) return error("the class has no closing ']'");
      CodeRange range;
      range.first = range.last = KTX_TRY(character());
      if (peek() == '-' && at_ + 1 < text_.size() && text_[at_ + 1] != ']') {
        ++at_;
        range.last = KTX_TRY(character());
      }
      if (range.last < range.first) return error("the range ends below its begin");
      ranges.push_back(range);
    }
    ++at_;
    return rules_.one_of(others ? complement(std::move(ranges)) : std::move(ranges));
  }
  Result<uint32_t> character() {
    if (peek() != '\\') {
      const Utf8Char c = decode_utf8(text_.substr(at_));
      if (!c.valid) return error("not UTF-8");
      at_ += c.length;
      return c.code;
    }
    const size_t begin = at_++;
    const char name = peek();
    for (const GbnfEscape& row : kGbnfEscapes) {
      if (row.name == name) {
        ++at_;
        return row.code;
      }
    }
    for (const HexRow& row : kHexEscapes) {
      if (row.name != name) continue;
      uint32_t code = 0;
      const std::string_view digits = text_.substr(std::min(at_ + 1, text_.size()), row.digits);
      const auto [end, status] =
          std::from_chars(digits.data(), digits.data() + digits.size(), code, 16);
      const bool whole = end == digits.data() + row.digits;
      if (status != std::errc() || !whole || code > kMaxCodePoint ||
          (code >= 0xD800 && code <= 0xDFFF)) {
        at_ = begin;
        return error("not a character");
      }
      at_ += 1 + row.digits;
      return code;
    }
    at_ = begin;
    return error("unknown escape");
  }

  std::string_view text_;
  const GbnfTokens& tokens_;
  size_t at_ = 0;
  GrammarRules rules_;
  std::unordered_map<std::string, int> index_;
  std::unordered_map<std::string, size_t> used_;  // first place of each rule that is used
};

}  // namespace

Result<GrammarRules> parse_gbnf(std::string_view text, const GbnfTokens& tokens) {
  return GbnfParser(text, tokens).parse();
}

}  // namespace ktx::text::grammar

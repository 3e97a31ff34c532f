#include "lib/server/filters/lark_pattern.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "lib/text/grammar/grammar_rules.h"
#include "lib/text/grammar/string_pattern.h"

namespace ktx::server {
namespace {

using text::grammar::kMaxPatternBytes;

// Terminals of Lark's own library.
struct CommonRow {
  std::string_view name, pattern;
};
constexpr CommonRow kCommon[] = {
    {"LF", R"(\n)"},
    {"CR", R"(\r)"},
    {"NEWLINE", R"((?:\r?\n)+)"},
    {"WS", R"([ \t\f\r\n]+)"},
    {"WS_INLINE", R"([ \t]+)"},
    {"DIGIT", "[0-9]"},
    {"HEXDIGIT", "[0-9a-fA-F]"},
    {"LCASE_LETTER", "[a-z]"},
    {"UCASE_LETTER", "[A-Z]"},
    {"LETTER", "[a-zA-Z]"},
    {"WORD", "[a-zA-Z]+"},
    {"CNAME", "[a-zA-Z_][a-zA-Z0-9_]*"},
    {"INT", "[0-9]+"},
    {"SIGNED_INT", "[+-]?[0-9]+"},
    {"NUMBER", R"((?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)"},
    {"SIGNED_NUMBER", R"([+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)"},
    {"ESCAPED_STRING", R"("(?:[^"\\\n]|\\[^\n])*")"},
};

// Name, and its text; Pattern, a literal or an expression as a regular expression; Sign, as it is.
enum class Kind { Name, Pattern, Sign };
struct Part {
  Kind kind;
  std::string text;
};
using Parts = std::vector<Part>;

bool is_name(char c) {
  return c == '_' || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

// "a\"b", without its quotes: its escapes are those of expressions.
std::string pattern_of_literal(std::string_view literal) {
  std::string out;
  for (size_t i = 0; i < literal.size(); ++i) {
    if (literal[i] == '\\' && i + 1 < literal.size()) {
      out += literal[++i] == '"' ? "\"" : std::string{'\\', literal[i]};
    } else {
      if (std::string_view("\\^$.|?*+()[]{}/").find(literal[i]) != std::string_view::npos)
        out += '\\';
      out += literal[i];
    }
  }
  return out;
}

// Its statements: those lines that begin with "|" go on with the line before them.
std::optional<std::vector<Parts>> statements(std::string_view text) {
  std::vector<Parts> out(1);
  for (size_t at = 0; at < text.size();) {
    const char c = text[at];
    const std::string_view rest = text.substr(at);
    Parts& parts = out.back();
    if (c == '\n') {
      const size_t next = text.find_first_not_of(" \t\r\n", at);
      const bool goes_on = next != text.npos && text[next] == '|';
      if (!goes_on && !parts.empty()) out.emplace_back();
      ++at;
    } else if (c == ' ' || c == '\t' || c == '\r') {
      ++at;
    } else if (rest.starts_with("//")) {
      at = std::min(text.find('\n', at), text.size());
    } else if (c == '"' || c == '/') {
      size_t end = at + 1;
      while (end < text.size() && text[end] != c && text[end] != '\n') {
        end += text[end] == '\\' ? 2 : 1;
      }
      if (end >= text.size() || text[end] != c) return std::nullopt;
      const std::string_view inner = text.substr(at + 1, end - at - 1);
      parts.push_back({Kind::Pattern, c == '"' ? pattern_of_literal(inner) : std::string(inner)});
      at = end + 1;
      if (at < text.size() && is_name(text[at])) return std::nullopt;  // flags
    } else if (is_name(c)) {
      const size_t begin = at;
      while (at < text.size() && is_name(text[at])) ++at;
      parts.push_back({Kind::Name, std::string(text.substr(begin, at - begin))});
    } else {
      const size_t size = rest.starts_with("->") || rest.starts_with("..") ? 2 : 1;
      parts.push_back({Kind::Sign, std::string(rest.substr(0, size))});
      at += size;
    }
  }
  return out;
}

class Converter {
 public:
  bool add(const Parts& parts) {
    if (parts.empty()) return true;
    parts_ = parts;
    at_ = 0;
    if (take("%")) return import();
    if (!take("?")) take("!");
    const std::string named = name();
    if (take(".")) (void)name();  // a priority
    if (named.empty() || !take(":")) return false;
    bodies_[named] = Parts(parts.begin() + static_cast<ptrdiff_t>(at_), parts.end());
    return true;
  }

  // Nothing where the rule is not there, or within itself.
  std::optional<std::string> pattern_of(const std::string& named) {
    if (const auto done = patterns_.find(named); done != patterns_.end()) return done->second;
    const auto body = bodies_.extract(named);
    if (body.empty()) return std::nullopt;
    const Parts outer = std::exchange(parts_, std::move(body.mapped()));
    const size_t at = std::exchange(at_, 0);
    std::string out;
    const bool whole = alternatives(out) && at_ == parts_.size();
    parts_ = outer;
    at_ = at;
    if (!whole) return std::nullopt;
    return patterns_[named] = "(?:" + out + ")";
  }

 private:
  bool at(Kind kind) const { return at_ < parts_.size() && parts_[at_].kind == kind; }
  bool take(std::string_view sign) {
    if (!at(Kind::Sign) || parts_[at_].text != sign) return false;
    ++at_;
    return true;
  }
  std::string name() { return at(Kind::Name) ? parts_[at_++].text : ""; }

  // %import common.LF, also "-> NAME" and (LF, WS)
  bool import() {
    if (name() != "import" || name() != "common") return false;
    if (take(".")) {
      const std::string of = name();
      return common(of, take("->") ? name() : of);
    }
    if (!take("(")) return false;
    do {
      const std::string of = name();
      if (!common(of, of)) return false;
    } while (take(","));
    return take(")");
  }
  bool common(const std::string& of, const std::string& as) {
    const auto* row = std::find_if(std::begin(kCommon), std::end(kCommon),
                                   [&](const CommonRow& each) { return each.name == of; });
    if (row == std::end(kCommon)) return false;
    patterns_[as] = fmt::format("(?:{})", row->pattern);
    return true;
  }

  bool alternatives(std::string& out) {
    if (depth_ == text::grammar::kMaxPatternDepth) return false;
    ++depth_;
    const bool read = read_alternatives(out);
    --depth_;
    return read;
  }
  bool read_alternatives(std::string& out) {
    for (;;) {
      while (at(Kind::Name) || at(Kind::Pattern) ||
             (at(Kind::Sign) && (parts_[at_].text == "(" || parts_[at_].text == "["))) {
        if (!item(out) || out.size() > kMaxPatternBytes) return false;
      }
      if (take("->")) (void)name();  // the name of a node of its tree
      if (!take("|")) return true;
      out += '|';
    }
  }

  bool item(std::string& out) {
    std::string one;
    if (at(Kind::Pattern)) {
      one = parts_[at_++].text;
      if (take("..")) {
        if (!at(Kind::Pattern)) return false;
        out += fmt::format("[{}-{}]", one, parts_[at_++].text);
        return repetition(out);
      }
    } else if (at(Kind::Name)) {
      const auto pattern = pattern_of(name());
      if (!pattern) return false;
      one = *pattern;
    } else {
      const bool optional = take("[");
      if (!optional && !take("(")) return false;
      if (!alternatives(one) || !take(optional ? "]" : ")")) return false;
      if (optional) one = fmt::format("(?:{})?", one);
    }
    out += fmt::format("(?:{})", one);
    return repetition(out);
  }

  // ? * + ~2 ~2..5
  bool repetition(std::string& out) {
    for (const char* sign : {"?", "*", "+"}) {
      if (take(sign)) {
        out += sign;
        return true;
      }
    }
    if (!take("~")) return true;
    const std::string least = name();
    out += fmt::format("{{{},{}}}", least, take("..") ? name() : least);
    return true;
  }

  std::map<std::string, Parts> bodies_;  // of rules that have no pattern yet
  std::map<std::string, std::string> patterns_;
  Parts parts_;  // what is being read
  size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace

std::optional<std::string> lark_pattern(std::string_view grammar) {
  constexpr size_t kMaxGrammarBytes = 64 * 1024;
  if (grammar.size() > kMaxGrammarBytes) return std::nullopt;
  const auto all = statements(grammar);
  if (!all) return std::nullopt;
  Converter converter;
  for (const Parts& parts : *all) {
    if (!converter.add(parts)) return std::nullopt;
  }
  const auto pattern = converter.pattern_of("start");
  text::grammar::GrammarRules rules;
  if (!pattern || !text::grammar::pattern_text(rules, *pattern).ok()) return std::nullopt;
  return pattern;
}

}  // namespace ktx::server

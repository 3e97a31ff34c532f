#include "lib/text/tokenizer/split_dialect.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <vector>

#include "lib/support/strings.h"

namespace ktx::text {
namespace {

// Scripts as tokenizer patterns name them.
constexpr std::array<std::string_view, 16> kScripts = {
    "Han",    "Hiragana", "Katakana",   "Hangul",  "Latin", "Cyrillic", "Greek",    "Arabic",
    "Hebrew", "Thai",     "Devanagari", "Bengali", "Tamil", "Bopomofo", "Armenian", "Georgian"};

// A partition of all characters by general category, for complements.
constexpr std::array<std::string_view, 11> kCategories = {"Lu", "Ll", "Lt", "Lm", "Lo", "M",
                                                          "N",  "P",  "S",  "Z",  "C"};

constexpr std::string_view kWord = R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc})";

// The inside of a set: what stands between its brackets, and whether "^" came first.
struct Set {
  bool negated = false;
  std::string items;
  bool is_group = false;  // items is a whole group, e.g. (?:(?![b])[a-z])
};

class Translator {
 public:
  explicit Translator(std::string_view pattern) : in_(pattern) {}

  Result<std::string> run() {
    while (at_ < in_.size()) {
      const char c = in_[at_];
      if (c == '\\') {
        const Set escape = KTX_TRY(read_escape());
        out_ += escape.is_group ? "[" + escape.items + "]" : escape.items;
      } else if (c == '[') {
        const Set set = KTX_TRY(read_set(0));
        out_ += set.is_group ? set.items : bracketed(set);
      } else {
        ++at_;
        if (c == '$' || c == '^') {
          out_ += fmt::format("(?m:{})", c);
        } else {
          out_ += c;
        }
      }
    }
    return std::move(out_);
  }

 private:
  static std::string bracketed(const Set& set) {
    return fmt::format("[{}{}]", set.negated ? "^" : "", set.items);
  }

  Error unsupported(std::string_view what) const {
    return Error{fmt::format("{} at offset {} of split pattern '{}' is not supported", what, at_,
                             printable(in_))};
  }

  // After a backslash; is_group means: several items, to be put into brackets.
  Result<Set> read_escape() {
    const size_t begin = at_;
    if (at_ + 1 >= in_.size()) return unsupported("a backslash");
    const char kind = in_[at_ + 1];
    at_ += 2;
    switch (kind) {
      case 's':
        return Set{false, R"(\p{White_Space})"};
      case 'S':
        return Set{false, R"(\P{White_Space})"};
      case 'w':
        return Set{false, std::string(kWord), true};
      case 'h':
        return Set{false, "0-9a-fA-F", true};
      case 'p':
      case 'P':
        return read_property(kind);
      case 'u': {
        const std::string_view digits = in_.substr(at_, 4);
        if (digits.size() < 4 || !std::all_of(digits.begin(), digits.end(), [](unsigned char d) {
              return std::isxdigit(d) != 0;
            })) {
          at_ = begin;
          return unsupported("\\u");
        }
        at_ += 4;
        return Set{false, fmt::format("\\x{{{}}}", digits)};
      }
      case 'W':
      case 'H':
      case 'Q':
      case 'E':
        at_ = begin;
        return unsupported(in_.substr(begin, 2));
      default:
        return Set{false, std::string(in_.substr(begin, 2))};
    }
  }

  Result<Set> read_property(char kind) {
    if (at_ >= in_.size() || in_[at_] != '{') return Set{false, fmt::format("\\{}", kind)};
    const size_t close = in_.find('}', at_);
    if (close == std::string_view::npos) return unsupported("an open property");
    const std::string_view name = in_.substr(at_ + 1, close - at_ - 1);
    at_ = close + 1;
    const bool script = std::find(kScripts.begin(), kScripts.end(), name) != kScripts.end();
    return Set{false, fmt::format("\\{}{{{}{}}}", kind, script ? "sc:" : "", name)};
  }

  // From "[" to "]".
  Result<Set> read_set(int depth) {
    if (depth > 8) return unsupported("a deeply nested set");
    ++at_;
    Set set;
    if (at_ < in_.size() && in_[at_] == '^') {
      set.negated = true;
      ++at_;
    }
    std::vector<Set> operands(1);  // of &&
    bool first = true;
    while (true) {
      if (at_ >= in_.size()) return unsupported("an open set");
      const char c = in_[at_];
      if (c == ']' && !first) break;
      first = false;
      if (in_.substr(at_, 2) == "&&") {
        at_ += 2;
        operands.emplace_back();
      } else if (c == '\\') {
        operands.back().items += KTX_TRY(read_escape()).items;
      } else if (in_.substr(at_, 2) == "[:") {
        const size_t close = in_.find(":]", at_);
        if (close == std::string_view::npos) return unsupported("an open set");
        operands.back().items += in_.substr(at_, close + 2 - at_);
        at_ = close + 2;
      } else if (c == '[') {
        const Set inner = KTX_TRY(read_set(depth + 1));
        if (inner.is_group) return unsupported("a nested intersection");
        if (inner.negated) {
          if (!operands.back().items.empty()) return unsupported("a nested negated set");
          operands.back().negated = true;
        }
        operands.back().items += inner.items;
      } else {
        if (operands.back().negated) return unsupported("a nested negated set");
        operands.back().items += c;
        ++at_;
      }
    }
    ++at_;
    if (operands.size() == 1) {
      if (operands[0].negated) set.negated = !set.negated;
      set.items = std::move(operands[0].items);
      return set;
    }
    if (set.negated || operands.size() > 2) return unsupported("this intersection");
    return intersection(operands[0], operands[1]);
  }

  static Set intersection(const Set& a, const Set& b) {
    // X and not Y is not (not X or Y), when X is a list of categories.
    if (!a.negated && b.negated) {
      std::string rest = a.items;
      std::string others;
      for (const std::string_view category : kCategories) {
        const std::string item = fmt::format("\\p{{{}}}", category);
        const size_t found = rest.find(item);
        if (found == std::string::npos) {
          others += item;
        } else {
          rest.erase(found, item.size());
        }
      }
      if (rest.empty()) return Set{true, others + b.items};
    }
    return Set{false, fmt::format("(?:(?={}){})", bracketed(b), bracketed(a)), true};
  }

  std::string_view in_;
  size_t at_ = 0;
  std::string out_;
};

}  // namespace

Result<std::string> to_pcre2(std::string_view pattern) {
  // Tried at each character of a run of spaces, it would run to the end of the run
  // and fail: quadratic. Where the first try fails, the others do.
  if (pattern == R"(\s+$)") return std::string(R"((?<!\p{White_Space})\p{White_Space}++(?m:$))");
  return Translator(pattern).run();
}

std::string literal_pattern(std::string_view text) {
  std::string pattern;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x80 && std::isalnum(byte) == 0) pattern += '\\';
    pattern += c;
  }
  return pattern;
}

}  // namespace ktx::text

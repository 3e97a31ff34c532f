#include "lib/text/grammar/string_pattern.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "lib/support/strings.h"
#include "lib/text/grammar/unicode_properties.h"
#include "lib/text/utf8.h"

namespace ktx::text::grammar {
namespace {

using Ranges = std::vector<CodeRange>;

struct ClassRow {
  char name;
  Ranges ranges;
};
const ClassRow kClasses[] = {
    {'d', {{'0', '9'}}},
    {'w', {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}}},
    {'s',
     {{9, 13},
      {' ', ' '},
      {0xA0, 0xA0},
      {0x1680, 0x1680},
      {0x2000, 0x200A},
      {0x2028, 0x2029},
      {0x202F, 0x202F},
      {0x205F, 0x205F},
      {0x3000, 0x3000},
      {0xFEFF, 0xFEFF}}},
};
const Ranges kLineEnds = {{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}};

struct EscapeRow {
  char name;
  uint32_t code;
};
constexpr int kManyCharacters = 1'000'000;  // lengths are not counted further
constexpr int kMaxLookAheads = 4;           // in each other
constexpr int kMaxSplits = 32;              // groups with look-aheads, each time one is read

constexpr EscapeRow kEscapes[] = {{'n', '\n'}, {'r', '\r'}, {'t', '\t'},
                                  {'f', '\f'}, {'v', '\v'}, {'0', 0}};

// `ranges` with the other case of their ASCII letters.
Ranges both_cases(Ranges ranges) {
  constexpr uint32_t kToLower = 'a' - 'A';
  for (size_t i = 0, size = ranges.size(); i < size; ++i) {
    const auto add = [&](uint32_t first, uint32_t last, uint32_t to) {
      const uint32_t from = std::max(ranges[i].first, first), end = std::min(ranges[i].last, last);
      if (from <= end) ranges.push_back({from + to, end + to});
    };
    add('A', 'Z', kToLower);
    add('a', 'z', 0u - kToLower);
  }
  return ranges;
}

// Characters as a JSON string writes them.
int json_characters(GrammarRules& g, const Ranges& ranges) {
  // The parts of `ranges` that need no escape.
  Ranges raw = complement(ranges);
  raw.insert(raw.end(), {{0, 0x1F}, {'"', '"'}, {'\\', '\\'}});
  std::vector<int> ways = {g.one_of(complement(raw))};
  const auto contains = [&](uint32_t code) {
    return std::any_of(ranges.begin(), ranges.end(), [&](const CodeRange& range) {
      return code >= range.first && code <= range.last;
    });
  };
  constexpr EscapeRow kJson[] = {{'"', '"'},  {'\\', '\\'}, {'b', '\b'}, {'f', '\f'},
                                 {'n', '\n'}, {'r', '\r'},  {'t', '\t'}};
  for (const EscapeRow& row : kJson) {
    if (contains(row.code)) ways.push_back(g.text(fmt::format("\\{}", row.name)));
  }
  for (uint32_t code = 0; code < 0x20; ++code) {
    const bool is_short = std::any_of(std::begin(kJson), std::end(kJson),
                                      [&](const EscapeRow& row) { return row.code == code; });
    if (!is_short && contains(code)) ways.push_back(g.text(fmt::format("\\u{:04x}", code)));
  }
  return g.alternatives(std::move(ways));
}

class Parser {
 public:
  enum class Form { JsonString, WholeText };
  Parser(GrammarRules& rules, std::string_view text, Form form, RegularWork& work,
         const LengthBounds& length)
      : g_(rules), text_(text), form_(form), work_(work), wanted_(length) {}

  Result<int> parse() {
    if (text_.size() > kMaxPatternBytes) {
      return error(fmt::format("more than {} bytes", kMaxPatternBytes));
    }
    const int inner = KTX_TRY(alternatives(0)).expr;
    if (at_ < text_.size()) return error("')' without '('");
    if (form_ == Form::WholeText) return inner;
    return g_.sequence({g_.text("\""), inner, g_.text("\"")});
  }

 private:
  // A part of the pattern, and how many characters it has. `unit`: it is `length` times this
  // one character.
  struct Part {
    int expr = -1;
    LengthBounds length;
    int unit = -1;
  };

  Part characters(const Ranges& ranges) {
    const int expr = form_ == Form::JsonString
                         ? json_characters(g_, ranges)
                         : g_.one_of(complement(complement(ranges)));  // each once, in order
    return {expr, {1, 1}, expr};
  }
  Part repeated(const Part& part, int min, int max) {
    const auto times = [](int a, int b) {
      return static_cast<int>(std::min<int64_t>(int64_t{a} * b, kManyCharacters));
    };
    const bool endless = max == kNoLimit || part.length.max == kNoLimit;
    Part out = {g_.repeat(part.expr, min, max),
                {times(part.length.min, min), endless ? kNoLimit : times(part.length.max, max)}};
    const bool single = part.unit == part.expr && part.unit >= 0;
    if (single) out.unit = part.unit;
    return out;
  }
  static LengthBounds sum(const std::vector<Part>& parts) {
    LengthBounds out = {0, 0};
    for (const Part& part : parts) {
      out.min = std::min(out.min + part.length.min, kManyCharacters);
      const bool endless = out.max == kNoLimit || part.length.max == kNoLimit;
      out.max = endless ? kNoLimit : std::min(out.max + part.length.max, kManyCharacters);
    }
    return out;
  }
  static bool is_within(const LengthBounds& a, const LengthBounds& b) {
    return a.min >= b.min && (b.max == kNoLimit || (a.max != kNoLimit && a.max <= b.max));
  }

  // Parts one after the other, as long as is wanted.
  Result<int> fitted(std::vector<Part> parts) {
    const LengthBounds all = sum(parts);
    if (!is_within(all, wanted_)) {
      if (wanted_.max != kNoLimit && all.min > wanted_.max) return g_.nothing();
      int open = 0;  // parts of several lengths
      for (const Part& part : parts) {
        const bool fixed = part.length.min == part.length.max;
        if (!fixed && part.unit < 0) {
          return Error{
              "'pattern' with 'minLength' or 'maxLength' is supported where only single characters "
              "are repeated; put the length into the pattern: {2,5}"};
        }
        if (!fixed) ++open;
      }
      int missing = std::max(0, wanted_.min - all.min);
      int spare = wanted_.max == kNoLimit ? kNoLimit : wanted_.max - all.min;
      for (Part& part : parts) {
        if (part.length.min == part.length.max) continue;
        // Each gets its share; the last ones what the first ones could not use.
        const int room = part.length.max == kNoLimit ? kNoLimit : part.length.max - part.length.min;
        int share = spare == kNoLimit ? kNoLimit : spare / open + (spare % open > 0 ? 1 : 0);
        if (room != kNoLimit) share = share == kNoLimit ? room : std::min(share, room);
        const int more = share == kNoLimit ? missing : std::min(missing, share);
        missing -= more;
        --open;
        if (spare != kNoLimit) spare -= share;
        part.length = {part.length.min + more,
                       share == kNoLimit ? kNoLimit : part.length.min + share};
        part.expr = g_.repeat(part.unit, part.length.min, part.length.max);
      }
      if (missing > 0) return g_.nothing();
    }
    return joined(parts);
  }
  int joined(const std::vector<Part>& parts) {
    std::vector<int> exprs;
    for (const Part& part : parts) exprs.push_back(part.expr);
    return exprs.empty() ? g_.text("") : g_.sequence(std::move(exprs));
  }

  // What a text must begin with, or must not.
  struct LookAhead {
    RegularSet texts;
    bool wanted = true;
  };
  Result<std::vector<LookAhead>> look_aheads() {
    std::vector<LookAhead> out;
    while (take("(?=") || take("(?!")) {
      const bool wanted = text_[at_ - 1] == '=';
      if (looking_ == kMaxLookAheads) return error("look-aheads are nested too deep");
      ++looking_;
      const Part inner = KTX_TRY(alternatives(0));
      --looking_;
      if (!take(")")) return error("'(' without ')'");
      out.push_back({KTX_TRY(regular_set(g_, inner.expr, work_)), wanted});
    }
    return out;
  }
  Result<Part> looked_at(const std::vector<Part>& parts, const std::vector<LookAhead>& looks) {
    RegularSet set = KTX_TRY(regular_set(g_, joined(parts), work_));
    for (const LookAhead& look : looks) {
      set = look.wanted ? KTX_TRY(common(set, look.texts, work_))
                        : KTX_TRY(without(set, look.texts, work_));
    }
    return Part{set.is_empty() ? g_.nothing() : g_.set(std::move(set)), {0, kNoLimit}, -1};
  }
  Error error(std::string_view what) const {
    return Error{fmt::format("pattern '{}', character {}: {}", printable(text_), at_ + 1, what)};
  }
  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  bool take(std::string_view wanted) {
    if (!text_.substr(at_).starts_with(wanted)) return false;
    at_ += wanted.size();
    return true;
  }
  Part anything() { return repeated(characters(complement({})), 0, kNoLimit); }

  Result<Part> alternatives(int depth) {
    if (depth > kMaxPatternDepth) return error("groups are nested too deep");
    std::vector<int> ways;
    LengthBounds length;
    do {
      // Each alternative of the whole pattern has its own anchors and look-aheads.
      const bool outer = depth == 0;
      bool at_begin = (outer && take_begin()) || looking_ > 0;
      take_any_case();
      const std::vector<LookAhead> looks =
          outer ? KTX_TRY(look_aheads()) : std::vector<LookAhead>();
      at_begin = (outer && take_begin()) || at_begin;
      std::vector<Part> parts = outer ? KTX_TRY(tail({})) : KTX_TRY(sequence(depth));
      const bool open = outer && is_open();
      if (!looks.empty()) parts = {KTX_TRY(looked_at(parts, looks))};
      if (open && !at_begin) parts.insert(parts.begin(), anything());
      const LengthBounds here = sum(parts);
      const bool endless = here.max == kNoLimit || length.max == kNoLimit;
      length = ways.empty() ? here
                            : LengthBounds{std::min(length.min, here.min),
                                           endless ? kNoLimit : std::max(length.max, here.max)};
      ways.push_back(outer && looking_ == 0 ? KTX_TRY(fitted(std::move(parts))) : joined(parts));
    } while (take("|"));
    return Part{g_.alternatives(std::move(ways)), length};
  }
  Result<std::vector<Part>> sequence(int depth) {
    std::vector<Part> parts;
    while (!is_end(at_)) {
      if (take_any_case()) continue;
      const Part part = KTX_TRY(primary(depth));
      parts.push_back(KTX_TRY(repetition(part)));
    }
    return parts;
  }
  bool is_end(size_t at) const {
    return at >= text_.size() || text_[at] == '|' || text_[at] == ')';
  }
  // Texts may go on where neither side is anchored.
  bool is_open() const { return form_ == Form::JsonString || looking_ > 0; }
  bool take_begin() { return take("^") || take("\\A"); }
  bool take_end() { return take("$") || take("\\z") || take("\\Z"); }

  // All that stands from here to the end of an alternative of the whole pattern or of a look-ahead,
  // which is what a look-ahead speaks of:
  //
  //   ^a(?:b|(?=c)d)e$   from the group on:   (?:be|(?=c)de)$
  //
  // `behind`: where it goes on behind each open group whose alternatives are read so.
  Result<std::vector<Part>> tail(std::vector<size_t> behind) {
    std::vector<Part> parts;
    for (;;) {
      while (!behind.empty() && is_end(at_)) leave_group(behind);
      if (is_end(at_)) break;
      if (take_any_case()) continue;
      if (is_last_end(at_, behind)) {
        (void)take_end();
        while (!behind.empty()) leave_group(behind);
        (void)take_end();
        return parts;
      }
      if (const std::vector<LookAhead> looks = KTX_TRY(look_aheads()); !looks.empty()) {
        parts.push_back(KTX_TRY(looked_at(KTX_TRY(tail(std::move(behind))), looks)));
        return parts;
      }
      if (const Group group = group_at(at_); group.looks) {
        parts.push_back(KTX_TRY(split_group(group, behind)));
        return parts;
      }
      const Part part = KTX_TRY(primary(0));
      parts.push_back(KTX_TRY(repetition(part)));
    }
    if (is_open()) parts.push_back(anything());
    return parts;
  }
  void leave_group(std::vector<size_t>& behind) {
    at_ = behind.back();
    behind.pop_back();
  }
  // Is that a $ with nothing behind it, in and behind each open group?
  bool is_last_end(size_t at, const std::vector<size_t>& behind) const {
    const auto skip = [&](size_t from) {
      const std::string_view rest = text_.substr(from);
      if (rest.starts_with('$')) return from + 1;
      return rest.starts_with("\\z") || rest.starts_with("\\Z") ? from + 2 : from;
    };
    if (skip(at) == at) return false;
    at = skip(at);
    for (size_t i = behind.size(); i > 0 && is_end(at); --i) at = skip(behind[i - 1]);
    return at >= text_.size() || text_[at] == '|' || (looking_ > 0 && text_[at] == ')');
  }

  // The group that opens there: where its alternatives begin, and whether look-aheads stand in it.
  struct Group {
    std::vector<size_t> begins;
    size_t close = 0;
    bool looks = false;
  };
  Group group_at(size_t open) const {
    Group out;
    if (open >= text_.size() || text_[open] != '(') return out;
    int depth = 0;
    bool in_class = false;
    for (size_t i = open; i < text_.size(); ++i) {
      const char c = text_[i];
      if (c == '\\') {
        ++i;
      } else if (in_class || c == '[') {
        in_class = c != ']';
      } else if (c == '(') {
        ++depth;
        const std::string_view rest = text_.substr(i);
        out.looks |= depth > 1 && (rest.starts_with("(?=") || rest.starts_with("(?!"));
      } else if (c == '|' && depth == 1) {
        out.begins.push_back(i + 1);
      } else if (c == ')' && --depth == 0) {
        out.close = i;
        break;
      }
    }
    const std::string_view rest = text_.substr(std::min(out.close + 1, text_.size()));
    const bool repeated = rest.starts_with('*') || rest.starts_with('+') || rest.starts_with('{');
    out.looks = out.looks && out.close > 0 && !repeated;
    return out;
  }
  // Its alternatives, each with all that follows.
  Result<Part> split_group(const Group& group, const std::vector<size_t>& behind) {
    if (++splits_ > kMaxSplits) return error("too many groups with look-aheads");
    const size_t open = at_;
    ++at_;
    if (take("?") && !take(":") && !take_name()) {
      at_ = open;
      return primary(0);  // names what is wrong
    }
    std::vector<size_t> begins = {at_};
    begins.insert(begins.end(), group.begins.begin(), group.begins.end());
    at_ = group.close + 1;
    const bool optional = take("?");
    if (optional) (void)take("?");  // lazy
    std::vector<size_t> within = behind;
    within.push_back(at_);
    std::vector<int> ways;
    const bool any_case = any_case_;
    if (optional) ways.push_back(joined(KTX_TRY(tail(behind))));
    for (const size_t begin : begins) {
      at_ = begin;
      any_case_ = any_case;
      ways.push_back(joined(KTX_TRY(tail(within))));
    }
    return Part{g_.alternatives(std::move(ways)), {0, kNoLimit}, -1};
  }
  Result<Part> primary(int depth) {
    const char c = peek();
    if (c == '^' || c == '$') return error("'^' and '$' are supported at the ends only");
    if (std::string_view("*+?{").find(c) != std::string_view::npos) {
      return error("nothing to repeat");
    }
    if (take("(")) {
      const bool any_case = any_case_;
      if (take("?i:")) {
        any_case_ = true;
      } else if (take("?") && !take(":") && !take_name()) {
        if (std::string_view("=!<").find(peek()) != std::string_view::npos) {
          return error("of look-around only look-aheads outside of repeated groups are supported");
        }
        return error("of flags only (?i) and (?i:...) are supported");
      }
      const Part inner = KTX_TRY(alternatives(depth + 1));
      any_case_ = any_case;
      if (!take(")")) return error("'(' without ')'");
      return inner;
    }
    if (take("[")) return characters(KTX_TRY(char_class()));
    if (take(".")) return characters(complement(kLineEnds));
    return characters(in_its_case(KTX_TRY(character(nullptr))));
  }
  // From there to the end of the group.
  bool take_any_case() {
    const bool taken = take("(?i)");
    any_case_ = any_case_ || taken;
    return taken;
  }
  Ranges in_its_case(Ranges ranges) const {
    return any_case_ ? both_cases(std::move(ranges)) : ranges;
  }
  // The name of a group: <year> or P<year>.
  bool take_name() {
    const size_t begin = at_;
    (void)take("P");
    const bool named = take("<") && peek() != '=' && peek() != '!';
    const size_t end = text_.find('>', at_);
    if (!named || end == std::string_view::npos) {
      at_ = begin;
      return false;
    }
    at_ = end + 1;
    return true;
  }
  Result<Part> repetition(const Part& part) {
    int min = 0, max = kNoLimit;
    if (take("*")) {
    } else if (take("+")) {
      min = 1;
    } else if (take("?")) {
      max = 1;
    } else if (take("{")) {
      min = max = KTX_TRY(number());
      if (take(",")) max = peek() == '}' ? kNoLimit : KTX_TRY(number());
      if (!take("}")) return error("expected '}'");
      if (max != kNoLimit && max < min) return error("a repetition ends below its begin");
    } else {
      return part;
    }
    (void)take("?");  // lazy: the same texts
    return repeated(part, min, max);
  }
  Result<int> number() {
    int value = -1;
    const auto [end, status] =
        std::from_chars(text_.data() + at_, text_.data() + text_.size(), value);
    if (status != std::errc() || value < 0 || value > kMaxPatternRepetitions) {
      return error(fmt::format("expected a number from 0 to {}", kMaxPatternRepetitions));
    }
    at_ = static_cast<size_t>(end - text_.data());
    return value;
  }

  Result<Ranges> char_class() {
    const bool others = take("^");
    Ranges out;
    while (peek() != ']') {
      if (at_ >= text_.size()) return error("'[' without ']'");
      bool is_class = false;
      const Ranges first = KTX_TRY(character(&is_class));
      if (!is_class && peek() == '-' && at_ + 1 < text_.size() && text_[at_ + 1] != ']') {
        ++at_;
        const Ranges last = KTX_TRY(character(&is_class));
        if (is_class || last[0].first < first[0].first) return error("not a range");
        out.push_back({first[0].first, last[0].first});
      } else {
        out.insert(out.end(), first.begin(), first.end());
      }
    }
    ++at_;
    out = in_its_case(std::move(out));
    return others ? complement(std::move(out)) : out;
  }
  // One character, or what \d and the like stand for (`is_class` is set then).
  Result<Ranges> character(bool* is_class) {
    if (peek() != '\\') {
      const Utf8Char c = decode_utf8(text_.substr(at_));
      if (!c.valid) return error("not UTF-8");
      at_ += c.length;
      return Ranges{{c.code, c.code}};
    }
    ++at_;
    const char name = peek();
    for (const ClassRow& row : kClasses) {
      const bool opposite = name == row.name - 'a' + 'A';
      if (name != row.name && !opposite) continue;
      ++at_;
      if (is_class != nullptr) *is_class = true;
      return opposite ? complement(row.ranges) : row.ranges;
    }
    for (const EscapeRow& row : kEscapes) {
      if (name != row.name) continue;
      ++at_;
      return Ranges{{row.code, row.code}};
    }
    if (name == 'x' || name == 'u') {
      const uint32_t code = KTX_TRY(numbered());
      return Ranges{{code, code}};
    }
    if (name == 'p' || name == 'P') {
      Ranges ranges = KTX_TRY(property());
      if (is_class != nullptr) *is_class = true;
      return name == 'P' ? complement(std::move(ranges)) : ranges;
    }
    // Only the letters and digits above can be escaped, but all punctuation can.
    const bool is_word = (name >= '0' && name <= '9') || (name >= 'A' && name <= 'Z') ||
                         (name >= 'a' && name <= 'z');
    if (name < ' ' || name == 0x7F || is_word) {
      return error("this escape is not supported");
    }
    ++at_;
    const auto code = static_cast<uint32_t>(name);
    return Ranges{{code, code}};
  }

  // x41, u0041, u{1F98A}, or the two halves uD83E\uDD8A.
  Result<uint32_t> numbered() {
    const size_t begin = at_;
    const bool open = take("u{");
    if (!open) ++at_;
    const size_t digits = open ? text_.find('}', at_) - at_ : text_[begin] == 'x' ? 2 : 4;
    const auto hex = [&](size_t at, size_t size) {
      const std::string_view part = at < text_.size() ? text_.substr(at, size) : "";
      uint32_t code = kMaxCodePoint + 1;
      const auto [end, status] = std::from_chars(part.data(), part.data() + part.size(), code, 16);
      const bool whole = status == std::errc() && end == part.data() + size && !part.empty();
      return whole ? code : kMaxCodePoint + 1;
    };
    uint32_t code = digits <= 8 ? hex(at_, digits) : kMaxCodePoint + 1;
    size_t behind = at_ + digits + (open ? 1 : 0);
    if (!open && code >= 0xD800 && code <= 0xDBFF && text_.substr(behind).starts_with("\\u")) {
      const uint32_t low = hex(behind + 2, 4);
      if (low >= 0xDC00 && low <= 0xDFFF) {
        code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
        behind += 6;
      }
    }
    if (code > kMaxCodePoint || (code >= 0xD800 && code <= 0xDFFF)) {
      at_ = begin;
      return error("not a character");
    }
    at_ = behind;
    return code;
  }
  // p{Lu}, or pL.
  Result<Ranges> property() {
    ++at_;
    const bool open = take("{");
    const size_t end = open ? text_.find('}', at_) : at_ + 1;
    if (end > text_.size()) return error("no name of a property");
    const std::string_view name = text_.substr(at_, end - at_);
    Result<Ranges> ranges = property_characters(name, work_);
    if (!ranges) return error(ranges.error().message);
    at_ = end + (open ? 1 : 0);
    return ranges;
  }

  GrammarRules& g_;
  std::string_view text_;
  const Form form_;
  RegularWork& work_;
  const LengthBounds wanted_;
  size_t at_ = 0;
  int looking_ = 0;  // look-aheads in each other
  int splits_ = 0;
  bool any_case_ = false;
};

}  // namespace

Result<int> pattern_string(GrammarRules& rules, std::string_view pattern, RegularWork& work,
                           const LengthBounds& length) {
  return Parser(rules, pattern, Parser::Form::JsonString, work, length).parse();
}
int any_characters(GrammarRules& g, const LengthBounds& length) {
  const int any = g.repeat(json_characters(g, complement({})), length.min, length.max);
  return g.sequence({g.text("\""), any, g.text("\"")});
}
Result<int> pattern_text(GrammarRules& rules, std::string_view pattern) {
  RegularWork work;
  return Parser(rules, pattern, Parser::Form::WholeText, work, {}).parse();
}

}  // namespace ktx::text::grammar

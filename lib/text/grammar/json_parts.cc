#include "lib/text/grammar/json_parts.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <span>

#include "lib/text/grammar/number_ranges.h"
#include "lib/text/utf8.h"

namespace ktx::text::grammar {
namespace {

constexpr int kMaxIndent = 20;
constexpr size_t kMaxKeyCompared = 64;  // code points; keys that begin alike are kept out

const std::vector<CodeRange> kDigit = {{'0', '9'}};
const std::vector<CodeRange> kNonzero = {{'1', '9'}};
const std::vector<CodeRange> kHex = {{'0', '9'}, {'A', 'F'}, {'a', 'f'}};
const std::vector<CodeRange> kShortEscapes = {{'"', '"'}, {'\\', '\\'}, {'/', '/'}, {'b', 'b'},
                                              {'f', 'f'}, {'n', 'n'},   {'r', 'r'}, {'t', 't'}};
const std::vector<CodeRange> kEscapedRanges = {{0, 0x1F}, {'"', '"'}, {'\\', '\\'}};

// Names as code points, those from `at` on; a node of the tree of names.
using Names = std::vector<std::span<const uint32_t>>;

int key_unlike(GrammarRules& g, JsonParts& parts, const Names& names, size_t at) {
  std::map<uint32_t, Names> by_next;
  bool taken = false;  // a name ends here
  std::vector<CodeRange> excluded = kEscapedRanges;
  for (const std::span<const uint32_t> name : names) {
    if (at == name.size()) {
      taken = true;
    } else {
      by_next[name[at]].push_back(name);
    }
  }
  for (const auto& [code, rest] : by_next) excluded.push_back({code, code});
  const int any = g.repeat(parts.raw_character(), 0, kNoLimit);
  std::vector<int> ways = {g.sequence({g.one_of(complement(excluded)), any, g.text("\"")})};
  if (!taken) ways.push_back(g.text("\""));
  for (const auto& [code, rest] : by_next) {
    const bool whole = at + 1 >= kMaxKeyCompared;
    if (code < 0x20 || code == '"' || code == '\\' || whole) continue;
    ways.push_back(g.sequence({g.one_of({{code, code}}), key_unlike(g, parts, rest, at + 1)}));
  }
  return g.alternatives(std::move(ways));
}

}  // namespace

std::string json_quoted(std::string_view text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

int JsonParts::space() {
  if (space_ < 0) {
    const int indent = g_.repeat(g_.one_of({{' ', ' '}, {'\t', '\t'}}), 0, kMaxIndent);
    space_ = g_.optional(g_.alternatives({g_.text(" "), g_.sequence({g_.text("\n"), indent})}));
  }
  return space_;
}

int JsonParts::raw_character() {
  if (raw_ < 0) raw_ = g_.one_of(complement(kEscapedRanges));
  return raw_;
}

int JsonParts::character() {
  if (character_ >= 0) return character_;
  const int hex = g_.one_of(kHex);
  const int hex2 = g_.sequence({hex, hex});
  const int d = g_.one_of({{'D', 'D'}, {'d', 'd'}});
  // \uXXXX but surrogates, and surrogates in pairs only.
  const int plain = g_.alternatives(
      {g_.sequence(
           {g_.one_of({{'0', '9'}, {'A', 'C'}, {'E', 'F'}, {'a', 'c'}, {'e', 'f'}}), hex, hex2}),
       g_.sequence({d, g_.one_of({{'0', '7'}}), hex2})});
  const int pair = g_.sequence({d, g_.one_of({{'8', '9'}, {'A', 'B'}, {'a', 'b'}}), hex2,
                                g_.text("\\u"), d, g_.one_of({{'C', 'F'}, {'c', 'f'}}), hex2});
  const int escape =
      g_.sequence({g_.text("\\"),
                   g_.alternatives({g_.one_of(kShortEscapes),
                                    g_.sequence({g_.text("u"), g_.alternatives({plain, pair})})})});
  character_ = g_.alternatives({raw_character(), escape});
  return character_;
}

int JsonParts::string(int min, int max) {
  return g_.sequence({g_.text("\""), g_.repeat(character(), min, max), g_.text("\"")});
}

int JsonParts::integer() {
  const int digits = g_.repeat(g_.one_of(kDigit), 0, kFreeDigits - 1);
  return g_.sequence({g_.optional(g_.text("-")),
                      g_.alternatives({g_.text("0"), g_.sequence({g_.one_of(kNonzero), digits})})});
}

int JsonParts::number() {
  const int digit = g_.one_of(kDigit);
  const int fraction = g_.sequence({g_.text("."), g_.repeat(digit, 1, kMaxFraction)});
  const int exponent =
      g_.sequence({g_.one_of({{'e', 'e'}, {'E', 'E'}}),
                   g_.optional(g_.one_of({{'+', '+'}, {'-', '-'}})), g_.repeat(digit, 1, 2)});
  return g_.sequence({integer(), g_.optional(fraction), g_.optional(exponent)});
}

int JsonParts::separator() {
  if (separator_ < 0) separator_ = g_.sequence({g_.text(","), space()});
  return separator_;
}

int JsonParts::member(int key, int value) {
  return g_.sequence({key, g_.text(":"), g_.optional(g_.text(" ")), value});
}

int JsonParts::bracketed(std::string_view open, int inner, std::string_view close) {
  return g_.sequence({g_.text(open), space(), inner, space(), g_.text(close)});
}

int JsonParts::any_object() {
  return object(g_.list(member(string(0, kNoLimit), any_value()), separator(), 0, kNoLimit));
}

int JsonParts::any_array() {
  return array(g_.list(any_value(), separator(), 0, kNoLimit));
}

int JsonParts::any_value() {
  if (any_ < 0) {
    any_ = g_.add_rule("any JSON value");
    const int value = g_.alternatives(
        {any_object(), any_array(), string(0, kNoLimit), number(), boolean(), null()});
    g_.set_rule(any_, value);
  }
  return g_.rule(any_);
}

int JsonParts::other_key(const std::vector<std::string>& names) {
  std::vector<std::vector<uint32_t>> codes;
  for (const std::string& name : names) {
    std::vector<uint32_t>& out = codes.emplace_back();
    for (std::string_view rest = name; !rest.empty();) {
      const Utf8Char c = decode_utf8(rest);
      out.push_back(c.code);
      rest.remove_prefix(c.length);
    }
  }
  return g_.sequence({g_.text("\""), key_unlike(g_, *this, Names(codes.begin(), codes.end()), 0)});
}

}  // namespace ktx::text::grammar

// Converts a schema's `pattern` to an expression for a JSON string, quotes included:
//
//   ^[A-Z]{2}\d+$   ->   "\"" [A-Z]{2} [0-9]+ "\""
//
// The part of ECMA regular expressions that has a plain meaning for whole texts:
// characters, `.`, classes, \d \w \s and their opposites, \n \r \t \f \v \0 \xHH
// \uHHHH \u{H…} (also two halves), \p{L} \p{Script=Greek} (unicode_properties.h), groups (also
// (?:…)),
// |, * + ? {n} {n,} {n,m} (also lazy), ^ at the begin and $ at the end; named groups are groups.
// Look-aheads, which say how the rest of the text must (not) begin, (?=.*\d) (?!foo), become a set
// (regular_set.h), within groups too, but for repeated ones. \A and \z are ^ and $. Not:
// look-behind, back references, \b, ^ and $ within. Without ^ or $ other text may stand there.
// Characters that JSON escapes are written in one form (\n, \u001f); all others as they are.
#pragma once

#include <string_view>

#include "lib/support/result.h"
#include "lib/text/grammar/grammar_rules.h"

namespace ktx::text::grammar {

inline constexpr int kMaxPatternDepth = 40;
inline constexpr int kMaxPatternRepetitions = 1000;
inline constexpr size_t kMaxPatternBytes = 4096;

// Characters that a text may have.
struct LengthBounds {
  int min = 0;
  int max = kNoLimit;
};

// Within `length` as far as the pattern itself does not see to it: repetitions of single
// characters are made shorter or longer, together no longer than `length.max`, which may be
// narrower than both say ([a-z]+@[a-z]+ with at most 9 is [a-z]{1,4}@[a-z]{1,4}). An error where
// other parts have several lengths. Expects length.min <= length.max.
Result<int> pattern_string(GrammarRules& rules, std::string_view pattern, RegularWork& work,
                           const LengthBounds& length = {});

// A JSON string of any characters, each written in one way.
int any_characters(GrammarRules& rules, const LengthBounds& length);

// A text without quotes and escapes that the pattern matches from begin to end.
Result<int> pattern_text(GrammarRules& rules, std::string_view pattern);

}  // namespace ktx::text::grammar

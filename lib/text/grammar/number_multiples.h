// An expression for the multiples of a whole number within bounds, over their digits:
//
//   of 5    ->   0 | 5 | -?[1-9]… that end with 0 or 5
//   of 7, from 0 to 20   ->   0 | 7 | 14
//
// Numbers have up to 18 digits.
#pragma once

#include <cstdint>

#include "lib/support/result.h"
#include "lib/text/grammar/grammar_rules.h"
#include "lib/text/grammar/number_ranges.h"

namespace ktx::text::grammar {

inline constexpr int64_t kMaxListedMultiples = 1000;

// `step` is from 1 to 10^18. An error where there are more multiples than can be listed, and the
// last two digits do not tell them (of 5, 4 and 100 they do, of 3 and 8 not).
Result<int> whole_multiples(GrammarRules& rules, const NumberBounds& bounds, int64_t step);

// The numbers without exponent, of any sign, that are multiples of `step`, which is above 0: 0.25
// has 0, 1.5 and -2.750. An error where the digits of the step are more than 1000 (12.5 has 125).
inline constexpr int64_t kMaxStepDigits = 1000;
Result<RegularSet> multiples(const Decimal& step);

}  // namespace ktx::text::grammar

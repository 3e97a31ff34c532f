// An expression for JSON numbers within bounds, over their digits:
//
//   integers from -3 to 12   ->   -[0-3] | [0-9] | 1[0-2]
//
// No exponents.
#pragma once

#include <optional>
#include <string>

#include "lib/support/result.h"
#include "lib/text/grammar/decimal.h"
#include "lib/text/grammar/grammar_rules.h"

namespace ktx::text::grammar {

// Digits that numbers are written with: of a whole part within bounds (2^256 has 78), of one
// without (2^128 has 39), and of a fraction (the precision of a double).
inline constexpr size_t kMaxWholeDigits = 80;
inline constexpr size_t kFreeDigits = 40;
inline constexpr size_t kMaxFraction = 16;

// With at most so many digits.
struct NumberBounds {
  std::optional<Decimal> low, high;
  bool low_open = false, high_open = false;  // the bound itself is not allowed
  bool integer = false;
};

int number_in_range(GrammarRules& rules, const NumberBounds& bounds);

}  // namespace ktx::text::grammar

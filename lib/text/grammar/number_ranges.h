// An expression for JSON numbers within bounds, over their digits:
//
//   integers from -3 to 12   ->   -[0-3] | [0-9] | 1[0-2]
//
// Whole parts and fractions have at most kMaxDigits digits; no exponents.
#pragma once

#include <optional>
#include <string>

#include "lib/support/result.h"
#include "lib/text/grammar/grammar_rules.h"

namespace ktx::text::grammar {

// A decimal number: sign, digits without leading zeros ("0" for zero), digits of the
// fraction without trailing zeros.
struct Decimal {
  bool negative = false;
  std::string whole = "0";
  std::string fraction;
  bool operator==(const Decimal&) const = default;
};

// From the text of a JSON number ("-1.5e3"); nothing when it has too many digits.
std::optional<Decimal> parse_decimal(std::string_view number);

struct NumberBounds {
  std::optional<Decimal> low, high;
  bool low_open = false, high_open = false;  // the bound itself is not allowed
  bool integer = false;
};

int number_in_range(GrammarRules& rules, const NumberBounds& bounds);

}  // namespace ktx::text::grammar

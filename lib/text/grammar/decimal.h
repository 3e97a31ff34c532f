// Decimal numbers with all their digits, so that schemas can have integers beyond the precision of
// doubles: 18446744073709551615, 2^53 + 1.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace ktx::text::grammar {

// Sign, digits without leading zeros ("0" for zero), digits of the fraction without trailing
// zeros. Zero has no sign.
struct Decimal {
  bool negative = false;
  std::string whole = "0";
  std::string fraction;
  bool operator==(const Decimal&) const = default;
  bool is_zero() const { return whole == "0" && fraction.empty(); }
};

// From the text of a JSON number ("-1.5e3"); exponents beyond those of doubles are cut.
Decimal parse_decimal(std::string_view number);
// The value of a number (text::is_numeric()).
Decimal decimal_of(const nlohmann::ordered_json& number);

// -1, 0 or 1: a below, equal to or above b, by value without sign.
int compare_size(const Decimal& a, const Decimal& b);
int compare(const Decimal& a, const Decimal& b);
int compare_numbers(const nlohmann::ordered_json& a, const nlohmann::ordered_json& b);

}  // namespace ktx::text::grammar

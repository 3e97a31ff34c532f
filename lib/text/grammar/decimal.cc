#include "lib/text/grammar/decimal.h"

#include <algorithm>
#include <charconv>
#include <climits>

#include "lib/text/exact_json.h"

namespace ktx::text::grammar {
namespace {

constexpr int kMaxExponent = 400;

}  // namespace

Decimal parse_decimal(std::string_view number) {
  Decimal out;
  if (number.starts_with('-')) {
    out.negative = true;
    number.remove_prefix(1);
  }
  int exponent = 0;
  if (const size_t e = number.find_first_of("eE"); e != std::string_view::npos) {
    std::string_view digits = number.substr(e + 1);
    if (digits.starts_with('+')) digits.remove_prefix(1);
    const auto read = std::from_chars(digits.data(), digits.data() + digits.size(), exponent);
    if (read.ec != std::errc()) exponent = digits.starts_with('-') ? INT_MIN : INT_MAX;
    exponent = std::clamp(exponent, -kMaxExponent, kMaxExponent);
    number = number.substr(0, e);
  }
  const size_t point = std::min(number.find('.'), number.size());
  std::string digits(number.substr(0, point));
  if (point < number.size()) digits += number.substr(point + 1);
  int whole_digits = static_cast<int>(point) + exponent;
  if (whole_digits < 0) {
    digits.insert(0, static_cast<size_t>(-whole_digits), '0');
    whole_digits = 0;
  }
  if (static_cast<size_t>(whole_digits) > digits.size()) digits.resize(whole_digits, '0');
  out.whole = digits.substr(0, whole_digits);
  out.fraction = digits.substr(whole_digits);
  out.whole.erase(0, std::min(out.whole.find_first_not_of('0'), out.whole.size()));
  if (out.whole.empty()) out.whole = "0";
  out.fraction.erase(out.fraction.find_last_not_of('0') + 1);
  if (out.is_zero()) out.negative = false;
  return out;
}

Decimal decimal_of(const nlohmann::ordered_json& number) {
  return parse_decimal(json_text(number));
}

int compare_size(const Decimal& a, const Decimal& b) {
  if (a.whole.size() != b.whole.size()) return a.whole.size() < b.whole.size() ? -1 : 1;
  if (const int whole = a.whole.compare(b.whole)) return whole < 0 ? -1 : 1;
  const int fraction = a.fraction.compare(b.fraction);  // a prefix is smaller: as numbers too
  return fraction < 0 ? -1 : fraction > 0;
}

int compare(const Decimal& a, const Decimal& b) {
  if (a.negative != b.negative) return a.negative ? -1 : 1;
  return a.negative ? -compare_size(a, b) : compare_size(a, b);
}
int compare_numbers(const nlohmann::ordered_json& a, const nlohmann::ordered_json& b) {
  return compare(decimal_of(a), decimal_of(b));
}

}  // namespace ktx::text::grammar

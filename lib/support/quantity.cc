#include "lib/support/quantity.h"

#include <charconv>
#include <string>

#include "lib/support/strings.h"

namespace ktx {
namespace {

constexpr size_t kMaxDecimals = 6;  // 10^6 << 40 fits an int64_t

struct Quantity {
  int64_t whole = 0;
  int64_t decimals = 0;  // 5 of "1.5"
  int64_t scale = 1;     // 10 of "1.5"
  std::string unit;      // in lower case
};

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

size_t digits_at(std::string_view text) {
  size_t count = 0;
  while (count < text.size() && is_digit(text[count])) ++count;
  return count;
}

bool read_digits(std::string_view digits, int64_t& out) {
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), out);
  return error == std::errc() && end == digits.data() + digits.size();
}

// "1.5 GiB" in its parts.
std::optional<Quantity> parse_quantity(std::string_view text) {
  Quantity out;
  text = trim(text);
  const size_t whole = digits_at(text);
  if (whole > 0 && !read_digits(text.substr(0, whole), out.whole)) return std::nullopt;
  text.remove_prefix(whole);
  size_t decimals = 0;
  if (text.starts_with('.')) {
    text.remove_prefix(1);
    decimals = digits_at(text);
    if (decimals == 0 || decimals > kMaxDecimals) return std::nullopt;
    (void)read_digits(text.substr(0, decimals), out.decimals);
    for (size_t i = 0; i < decimals; ++i) out.scale *= 10;
    text.remove_prefix(decimals);
  }
  if (whole + decimals == 0) return std::nullopt;
  if (text.starts_with(' ') && text.size() > 1) text.remove_prefix(1);
  for (const char c : text) out.unit += c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
  return out;
}

// The power of two of a unit; -1: there is no such unit.
int shift_of(std::string_view unit, bool bytes) {
  constexpr std::string_view kLetters = "kmgt";
  if (unit.empty() || (bytes && unit == "b")) return 0;
  const size_t at = kLetters.find(unit[0]);
  if (at == kLetters.npos || (!bytes && unit[0] == 't')) return -1;
  const std::string_view rest = unit.substr(1);
  const bool known = rest.empty() || (bytes && (rest == "b" || rest == "ib"));
  return known ? 10 * (static_cast<int>(at) + 1) : -1;
}

}  // namespace

std::optional<int64_t> parse_whole(std::string_view text, int64_t low, int64_t high) {
  int64_t value = 0;
  if (!read_digits(text, value) || value < low || value > high) return std::nullopt;
  return value;
}

std::optional<int64_t> parse_count(std::string_view text, int64_t low, int64_t high) {
  const std::optional<Quantity> parsed = parse_quantity(text);
  if (!parsed) return std::nullopt;
  const int shift = shift_of(parsed->unit, /*bytes=*/false);
  if (shift < 0 || parsed->whole > high >> shift) return std::nullopt;
  if ((parsed->decimals << shift) % parsed->scale != 0) return std::nullopt;
  const int64_t value = (parsed->whole << shift) + (parsed->decimals << shift) / parsed->scale;
  return value < low || value > high ? std::nullopt : std::optional(value);
}

std::optional<int64_t> parse_size(std::string_view text, int64_t high) {
  const std::optional<Quantity> parsed = parse_quantity(text);
  if (!parsed) return std::nullopt;
  const int shift = shift_of(parsed->unit, /*bytes=*/true);
  if (shift < 0 || parsed->whole > high >> shift) return std::nullopt;
  if (shift == 0 && parsed->scale > 1) return std::nullopt;  // half a byte
  const int64_t value = (parsed->whole << shift) + (parsed->decimals << shift) / parsed->scale;
  return value < 1 || value > high ? std::nullopt : std::optional(value);
}

}  // namespace ktx

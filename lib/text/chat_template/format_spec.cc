#include "lib/text/chat_template/format_spec.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdio>

#include "lib/support/strings.h"
#include "lib/text/chat_template/jinja_format.h"
#include "lib/text/chat_template/jinja_print.h"
#include "lib/text/chat_template/unicode_text.h"

namespace ktx::text::jinja {
namespace {

bool is_decimal(char c) {
  return c >= '0' && c <= '9';
}

std::string group_digits(const std::string& digits, char separator, size_t every) {
  std::string out;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % every == 0) out += separator;
    out += digits[i];
  }
  return out;
}

std::string with_sign(bool negative, char sign, std::string_view digits) {
  if (!negative && sign == '-') return std::string(digits);
  return fmt::format("{}{}", negative ? '-' : sign, digits);
}

std::string integer_digits(uint64_t value, char type) {
  switch (type) {
    case 'x':
      return fmt::format("{:x}", value);
    case 'X':
      return fmt::format("{:X}", value);
    case 'o':
      return fmt::format("{:o}", value);
    case 'b':
      return fmt::format("{:b}", value);
    default:
      return fmt::format("{}", value);
  }
}

}  // namespace

Result<int64_t> take_number(std::string_view& text, int64_t limit) {
  int64_t number = 0;
  while (!text.empty() && is_decimal(text[0])) {
    number = number * 10 + (text[0] - '0');
    if (number > limit) return Error{fmt::format("a format's number is above {}", limit)};
    text.remove_prefix(1);
  }
  return number;
}

std::string pad(std::string body, const FormatSpec& spec, char default_align) {
  const int64_t missing = spec.width - count_code_points(body);
  if (missing <= 0) return body;
  const char align = spec.align != 0 ? spec.align : default_align;
  const int64_t left = align == '<' ? 0 : align == '^' ? missing / 2 : missing;
  std::string out;
  if (align == '=') {  // between the sign (or 0x) and the digits
    size_t start = !body.empty() && (body[0] == '-' || body[0] == '+' || body[0] == ' ') ? 1 : 0;
    if (spec.alternate && start + 1 < body.size() && body[start] == '0' &&
        !is_decimal(body[start + 1]) && body[start + 1] != '.') {
      start += 2;
    }
    out = body.substr(0, start);
    body.erase(0, start);
  }
  for (int64_t i = 0; i < left; ++i) out += spec.fill;
  out += body;
  for (int64_t i = left; i < missing; ++i) out += spec.fill;
  return out;
}

std::string format_integer(int64_t value, const FormatSpec& spec) {
  const uint64_t magnitude =
      value < 0 ? uint64_t{0} - static_cast<uint64_t>(value) : static_cast<uint64_t>(value);
  std::string digits = integer_digits(magnitude, spec.type);
  const bool decimal = std::string_view("xXob").find(spec.type) == std::string_view::npos;
  if (spec.grouping != 0) digits = group_digits(digits, spec.grouping, decimal ? 3 : 4);
  if (spec.alternate && !decimal) digits = fmt::format("0{}{}", spec.type, digits);
  return with_sign(value < 0, spec.sign, digits);
}

std::string format_float(double value, const FormatSpec& spec) {
  const bool negative = std::signbit(value) && !std::isnan(value);
  const double magnitude = std::abs(value);
  std::string digits;
  const char type = spec.type == 0 ? 'g' : spec.type;
  if (spec.type == 0 && spec.precision < 0) {
    digits = float_repr(magnitude);
  } else if (!std::isfinite(magnitude)) {
    digits = std::isnan(magnitude) ? "nan" : "inf";
    if (type >= 'A' && type <= 'Z') digits = std::isnan(magnitude) ? "NAN" : "INF";
  } else {
    const int precision = spec.precision < 0 ? 6 : static_cast<int>(spec.precision);
    const char letter = type == '%' ? 'f' : type;
    const char pattern[] = {'%',
                            spec.alternate ? '#' : '.',
                            spec.alternate ? '.' : '*',
                            spec.alternate ? '*' : letter,
                            spec.alternate ? letter : '\0',
                            '\0'};
    const double shown = type == '%' ? magnitude * 100 : magnitude;
    // 310 digits before the point at most.
    std::string buffer(static_cast<size_t>(precision) + 330, '\0');
    const int length = std::snprintf(buffer.data(), buffer.size(), pattern, precision, shown);
    digits = buffer.substr(0, static_cast<size_t>(std::max(length, 0)));
    if (spec.type == 0 && digits.find_first_of(".en") == std::string::npos) digits += ".0";
    if (type == '%') digits += '%';
  }
  if (spec.grouping != 0) {
    const size_t end = digits.find_first_not_of("0123456789");
    const std::string whole = digits.substr(0, end);
    digits = group_digits(whole, spec.grouping, 3) + digits.substr(whole.size());
  }
  return with_sign(negative, spec.sign, digits);
}

std::string cut(std::string text, int64_t precision) {
  if (precision >= 0) text.resize(code_point_offset(text, precision));
  return text;
}

Result<FormatSpec> parse_spec(std::string_view text) {
  FormatSpec spec;
  const std::string_view whole = text;
  const auto is_align = [](char c) { return c == '<' || c == '>' || c == '^' || c == '='; };
  if (!text.empty()) {
    const size_t first = code_point_bytes(text);
    if (first < text.size() && is_align(text[first])) {
      spec.fill = std::string(text.substr(0, first));
      spec.align = text[first];
      text.remove_prefix(first + 1);
    } else if (is_align(text[0])) {
      spec.align = text[0];
      text.remove_prefix(1);
    }
  }
  const auto take = [&](std::string_view any) {
    if (text.empty() || any.find(text[0]) == std::string_view::npos) return '\0';
    const char c = text[0];
    text.remove_prefix(1);
    return c;
  };
  if (const char sign = take("+- ")) spec.sign = sign;
  spec.alternate = take("#") != 0;
  if (take("0") != 0) {
    if (spec.align == 0) {
      spec.align = '=';
      spec.fill.assign(1, '0');
    }
    spec.zero = true;
  }
  spec.width = KTX_TRY(take_number(text, kMaxFormatWidth));
  spec.grouping = take(",_");
  if (take(".") != 0) {
    if (text.empty() || !is_decimal(text[0])) return Error{"Format specifier missing precision"};
    spec.precision = KTX_TRY(take_number(text, kMaxFormatPrecision));
  }
  spec.type = take("bcdeEfFgGnosxX%");
  if (!text.empty()) {
    return Error{fmt::format("Invalid format specifier '{}'", printable(whole, 40))};
  }
  return spec;
}

}  // namespace ktx::text::jinja

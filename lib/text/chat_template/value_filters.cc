// Filters on single values: default, numbers, JSON, attr.
#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <cstdlib>

#include "lib/support/strings.h"
#include "lib/text/chat_template/jinja_builtins.h"
#include "lib/text/chat_template/jinja_interpreter.h"
#include "lib/text/chat_template/jinja_json.h"
#include "lib/text/chat_template/jinja_operators.h"
#include "lib/text/chat_template/jinja_print.h"
#include "lib/text/chat_template/unicode_text.h"
#include "lib/text/exact_json.h"

namespace ktx::text::jinja {
namespace {

// More digits than any number needs; longer text is no number.
constexpr size_t kMaxNumberText = 400;

Result<Value> filter_default(Call& call) {
  if (call.self.is_undefined() || (call.flag(1) && !truthy(call.self))) {
    return call.has(0) ? call.args[0] : call.string("");
  }
  return call.self;
}

// Digits with the underscores and blanks that Python allows taken out; nothing
// when they stand where they may not.
std::optional<std::string> plain_number(std::string_view text) {
  text = strip_space(text, Side::Both);
  if (text.empty() || text.size() > kMaxNumberText) return std::nullopt;
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto digit = [&](size_t k) {
      return k < text.size() && std::isxdigit(static_cast<unsigned char>(text[k])) != 0;
    };
    if (text[i] != '_') {
      out += text[i];
    } else if (i == 0 || !digit(i - 1) || !digit(i + 1)) {
      return std::nullopt;
    }
  }
  return out;
}

std::optional<double> parse_float(std::string_view text) {
  const std::optional<std::string> plain = plain_number(text);
  // strtod also takes hexadecimal floats, which Python does not.
  if (!plain || plain->find_first_of("xX(") != std::string::npos) return std::nullopt;
  char* end = nullptr;
  const double value = std::strtod(plain->c_str(), &end);
  if (end != plain->c_str() + plain->size()) return std::nullopt;
  return value;
}

// int(text, base). No value: not an integer; an error: too large.
Result<std::optional<int64_t>> parse_integer(std::string_view text, int base) {
  std::optional<std::string> plain = plain_number(text);
  if (!plain) return std::optional<int64_t>();
  std::string_view digits = *plain;
  const bool negative = digits[0] == '-';
  if (negative || digits[0] == '+') digits.remove_prefix(1);
  if (digits.size() > 2 && digits[0] == '0') {
    const char mark = static_cast<char>(digits[1] | 0x20);
    const int prefix = mark == 'x' ? 16 : mark == 'o' ? 8 : mark == 'b' ? 2 : 0;
    if (prefix != 0 && (base == prefix || base == 0)) {
      digits.remove_prefix(2);
      base = prefix;
    }
  }
  if (base == 0) base = 10;
  std::string signed_digits = (negative ? "-" : "") + std::string(digits);
  if (digits.empty() || digits[0] == '-' || digits[0] == '+') return std::optional<int64_t>();
  int64_t value = 0;
  const char* begin = signed_digits.data();
  const char* end = begin + signed_digits.size();
  const auto [stop, error] = std::from_chars(begin, end, value, base);
  if (stop != end) return std::optional<int64_t>();
  if (error == std::errc::result_out_of_range) {
    return Error{fmt::format("integer {} does not fit in 64 bits", printable(text, 40))};
  }
  return error == std::errc() ? std::optional<int64_t>(value) : std::nullopt;
}

Result<Value> truncate_float(double value, const Value& fallback) {
  if (std::isnan(value)) return fallback;
  if (!(std::abs(value) < 9223372036854775808.0)) {
    return Error{"cannot convert the float to a 64-bit integer"};
  }
  return Value::integer(static_cast<int64_t>(value));
}

Result<Value> filter_int(Call& call) {
  const Value fallback = call.has(0) ? call.args[0] : Value::integer(0);
  const Value& self = call.self;
  if (self.is_undefined()) return undefined_error(self);
  if (self.is_integral()) return Value::integer(self.as_int());
  if (self.is(Kind::WideInt)) return self;
  if (self.is(Kind::Float)) return truncate_float(self.as_double(), fallback);
  if (!self.is_string()) return fallback;
  const int64_t base = KTX_TRY(call.integer(1, 10));
  if (base == 0 || (base >= 2 && base <= 36)) {
    if (const auto value = KTX_TRY(parse_integer(self.text(), static_cast<int>(base)))) {
      return Value::integer(*value);
    }
  }
  const std::optional<double> number = parse_float(self.text());
  if (!number || std::isinf(*number)) return fallback;
  return truncate_float(*number, fallback);
}

Result<Value> filter_float(Call& call) {
  const Value& self = call.self;
  if (self.is_undefined()) return undefined_error(self);
  if (self.is_number()) return Value::real(self.as_double());
  if (self.is_string()) {
    if (const std::optional<double> value = parse_float(self.text())) return Value::real(*value);
  }
  return call.has(0) ? call.args[0] : Value::real(0);
}

Result<Value> filter_abs(Call& call) {
  const Value& self = call.self;
  if (self.is_undefined()) return undefined_error(self);
  if (self.is_real()) return Value::real(std::abs(self.as_double()));
  if (!self.is_integral()) {
    return Error{fmt::format("bad operand type for abs(): '{}'", type_name(self))};
  }
  if (self.as_int() < 0) return apply_unary(UnaryOp::Negate, self);
  return Value::integer(self.as_int());
}

// Half to even on the exact decimal expansion, as Python's round().
double round_to(double value, int64_t precision) {
  if (!std::isfinite(value) || precision > 300) return value;
  if (precision < -308) return std::copysign(0.0, value);
  if (precision < 0) {
    const double unit = std::pow(10.0, static_cast<double>(-precision));
    return std::nearbyint(value / unit) * unit;
  }
  const std::string text = fmt::format("{:.{}f}", value, precision);
  return std::strtod(text.c_str(), nullptr);
}

Result<Value> filter_round(Call& call) {
  const Value& self = call.self;
  if (self.is_undefined()) return undefined_error(self);
  const int64_t precision = KTX_TRY(call.integer(0, 0));
  const std::string_view method = KTX_TRY(call.text(1, "common"));
  if (method != "common" && method != "ceil" && method != "floor") {
    return Error{"method must be common, ceil or floor"};
  }
  if (!self.is_number()) {
    return Error{fmt::format("type {} doesn't define __round__ method", type_name(self))};
  }
  if (method == "common") {
    if (self.is(Kind::WideInt) && precision >= 0) return self;
    if (self.is_real()) return Value::real(round_to(self.as_double(), precision));
    if (precision >= 0) return Value::integer(self.as_int());
    if (precision < -18) return Value::integer(0);
    int64_t unit = 1;
    for (int64_t i = 0; i < -precision; ++i) unit *= 10;
    const int64_t rest = ((self.as_int() % unit) + unit) % unit;
    int64_t down = 0;
    if (__builtin_sub_overflow(self.as_int(), rest, &down)) return Error{"the result is too large"};
    const bool up = rest * 2 > unit || (rest * 2 == unit && (down / unit) % 2 != 0);
    if (up && __builtin_add_overflow(down, unit, &down)) return Error{"the result is too large"};
    return Value::integer(down);
  }
  const double scale = std::pow(10.0, static_cast<double>(precision));
  const double scaled = self.as_double() * scale;
  const double whole = method == "ceil" ? std::ceil(scaled) : std::floor(scaled);
  if (!std::isfinite(whole) || scale == 0) return Error{"cannot round an infinite number"};
  return Value::real(whole / scale);
}

Result<Value> filter_tojson(Call& call) {
  JsonStyle style;
  style.ensure_ascii = call.flag(0);
  if (call.has(1) && !call.args[1].is_none()) {
    if (call.args[1].is_string()) {
      style.indent = call.args[1].text();
    } else {
      const int64_t width = KTX_TRY(call.integer(1));
      KTX_TRY(call.meter.reserve(width));
      style.indent = std::string(static_cast<size_t>(std::max<int64_t>(width, 0)), ' ');
    }
    style.item_separator = ",";
  }
  if (call.has(2) && !call.args[2].is_none()) {
    const std::vector<Value> pair = KTX_TRY(items_of(call.meter, call.args[2]));
    if (pair.size() != 2 || !pair[0].is_string() || !pair[1].is_string()) {
      return Error{"tojson: separators must be two strings"};
    }
    style.item_separator = pair[0].text();
    style.key_separator = pair[1].text();
  }
  style.sort_keys = call.flag(3);
  return call.string(KTX_TRY(to_json(call.meter, call.self, style)));
}

// No filter of Jinja's own: DeepSeek's templates read the text of a call's arguments with it.
Result<Value> filter_from_json(Call& call) {
  if (!call.self.is_string()) return Error{"from_json: only text can be read as JSON"};
  KTX_TRY(call.meter.reserve(static_cast<int64_t>(call.self.text().size())));
  const nlohmann::ordered_json json = parse_json(call.self.text());
  if (json.is_discarded()) return Error{"from_json: the text is no JSON"};
  return from_json(call.meter, json, call.self.outside());
}

Result<Value> filter_attr(Call& call) {
  const std::string name = KTX_TRY(call.printed(0));
  // Only attributes, no items: a dict has its methods.
  if (call.self.is(Kind::Dict) && find_method(Kind::Dict, name) == nullptr) {
    return missing_attribute(call.self, name);
  }
  return call.in.attribute(call.self, name);
}

Result<Value> filter_filesizeformat(Call& call) {
  Value number = call.self;
  if (number.is_string()) {
    const std::optional<double> value = parse_float(number.text());
    if (!value) {
      return Error{
          fmt::format("could not convert string to float: '{}'", printable(number.text()))};
    }
    number = Value::real(*value);
  }
  if (!number.is_number()) {
    return Error{fmt::format("filesizeformat: expected a number, got {}", type_name(number))};
  }
  const bool binary = call.flag(0);
  const double bytes = number.as_double();
  const double base = binary ? 1024 : 1000;
  if (bytes == 1) return call.string("1 Byte");
  if (bytes < base) return call.string(fmt::format("{:.0f} Bytes", std::trunc(bytes)));
  static constexpr const char* kBinary[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB", "ZiB", "YiB"};
  static constexpr const char* kDecimal[] = {"kB", "MB", "GB", "TB", "PB", "EB", "ZB", "YB"};
  double unit = base;
  int i = 0;
  while (i < 7 && bytes >= unit * base) {
    unit *= base;
    ++i;
  }
  return call.string(fmt::format("{:.1f} {}", bytes / unit, binary ? kBinary[i] : kDecimal[i]));
}

constexpr Builtin kValueFilters[] = {
    {"default", "default_value? boolean?", filter_default},
    {"d", "default_value? boolean?", filter_default},
    {"int", "default? base?", filter_int},
    {"float", "default?", filter_float},
    {"abs", "", filter_abs},
    {"round", "precision? method?", filter_round},
    {"tojson", "ensure_ascii? indent? separators? sort_keys?", filter_tojson},
    {"from_json", "", filter_from_json},
    {"attr", "name", filter_attr},
    {"filesizeformat", "binary?", filter_filesizeformat},
};

}  // namespace

std::span<const Builtin> value_filters() {
  return kValueFilters;
}

}  // namespace ktx::text::jinja

#include "lib/text/chat_template/jinja_format.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdio>

#include "lib/support/strings.h"
#include "lib/text/chat_template/jinja_interpreter.h"
#include "lib/text/chat_template/jinja_builtins.h"
#include "lib/text/chat_template/jinja_operators.h"
#include "lib/text/chat_template/jinja_print.h"
#include "lib/text/chat_template/unicode_text.h"

namespace ktx::text::jinja {
namespace {

// [[fill]align][sign][#][0][width][,|_][.precision][type], of both kinds of format.
struct Spec {
  std::string fill = " ";
  char align = 0;  // < > ^ = ; 0: by type
  char sign = '-';
  bool alternate = false;
  bool zero = false;
  int64_t width = 0;
  char grouping = 0;
  int64_t precision = -1;
  char type = 0;
};

bool is_digit_char(char c) {
  return c >= '0' && c <= '9';
}

// The number at the start of `text`, which is taken from it; `limit` at most.
Result<int64_t> take_number(std::string_view& text, int64_t limit) {
  int64_t number = 0;
  while (!text.empty() && is_digit_char(text[0])) {
    number = number * 10 + (text[0] - '0');
    if (number > limit) return Error{fmt::format("a format's number is above {}", limit)};
    text.remove_prefix(1);
  }
  return number;
}

std::string pad(std::string body, const Spec& spec, char default_align) {
  const int64_t missing = spec.width - count_code_points(body);
  if (missing <= 0) return body;
  const char align = spec.align != 0 ? spec.align : default_align;
  const int64_t left = align == '<' ? 0 : align == '^' ? missing / 2 : missing;
  std::string out;
  if (align == '=') {  // between the sign (or 0x) and the digits
    size_t start = !body.empty() && (body[0] == '-' || body[0] == '+' || body[0] == ' ') ? 1 : 0;
    if (spec.alternate && start + 1 < body.size() && body[start] == '0' &&
        !is_digit_char(body[start + 1]) && body[start + 1] != '.') {
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

std::string format_integer(int64_t value, const Spec& spec) {
  const uint64_t magnitude =
      value < 0 ? uint64_t{0} - static_cast<uint64_t>(value) : static_cast<uint64_t>(value);
  std::string digits = integer_digits(magnitude, spec.type);
  const bool decimal = std::string_view("xXob").find(spec.type) == std::string_view::npos;
  if (spec.grouping != 0) digits = group_digits(digits, spec.grouping, decimal ? 3 : 4);
  if (spec.alternate && !decimal) digits = fmt::format("0{}{}", spec.type, digits);
  return with_sign(value < 0, spec.sign, digits);
}

std::string format_float(double value, const Spec& spec) {
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

Result<Spec> parse_spec(std::string_view text) {
  Spec spec;
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
    if (text.empty() || !is_digit_char(text[0])) return Error{"Format specifier missing precision"};
    spec.precision = KTX_TRY(take_number(text, kMaxFormatPrecision));
  }
  spec.type = take("bcdeEfFgGnosxX%");
  if (!text.empty()) {
    return Error{fmt::format("Invalid format specifier '{}'", printable(whole, 40))};
  }
  return spec;
}

// One %-conversion: everything after the '%'.
struct PercentConversion {
  std::string name;  // %(name)s
  bool has_name = false;
  Spec spec;
  bool star_width = false, star_precision = false;
};

Result<PercentConversion> parse_conversion(std::string_view& text) {
  PercentConversion conversion;
  if (!text.empty() && text[0] == '(') {
    const size_t end = text.find(')');
    if (end == std::string_view::npos) return Error{"incomplete format key"};
    conversion.name = std::string(text.substr(1, end - 1));
    conversion.has_name = true;
    text.remove_prefix(end + 1);
  }
  Spec& spec = conversion.spec;
  spec.align = '>';
  for (; !text.empty(); text.remove_prefix(1)) {
    const char c = text[0];
    if (c == '-') {
      spec.align = '<';
    } else if (c == '+') {
      spec.sign = '+';
    } else if (c == ' ') {
      if (spec.sign != '+') spec.sign = ' ';
    } else if (c == '#') {
      spec.alternate = true;
    } else if (c == '0') {
      spec.zero = true;
    } else {
      break;
    }
  }
  if (!text.empty() && text[0] == '*') {
    conversion.star_width = true;
    text.remove_prefix(1);
  } else {
    spec.width = KTX_TRY(take_number(text, kMaxFormatWidth));
  }
  if (!text.empty() && text[0] == '.') {
    text.remove_prefix(1);
    if (!text.empty() && text[0] == '*') {
      conversion.star_precision = true;
      text.remove_prefix(1);
    } else {
      spec.precision = KTX_TRY(take_number(text, kMaxFormatPrecision));
    }
  }
  while (!text.empty() && (text[0] == 'l' || text[0] == 'h' || text[0] == 'L')) {
    text.remove_prefix(1);
  }
  if (text.empty()) return Error{"incomplete format"};
  spec.type = text[0];
  text.remove_prefix(code_point_bytes(text));
  return conversion;
}

Result<std::string> convert_percent(Meter& meter, const Value& value, Spec spec) {
  switch (spec.type) {
    case 's':
      return pad(cut(KTX_TRY(to_str(meter, value)), spec.precision), spec, '>');
    case 'r':
    case 'a':
      return pad(cut(KTX_TRY(to_repr(meter, value)), spec.precision), spec, '>');
    case 'c': {
      if (value.is_string() && value.string().length() == 1) return pad(value.text(), spec, '>');
      if (!value.is_integral() || value.as_int() < 0 || value.as_int() > 0x10FFFF) {
        return Error{"%c requires int or char"};
      }
      std::string character;
      append_code_point(character, static_cast<char32_t>(value.as_int()));
      return pad(std::move(character), spec, '>');
    }
    case 'd':
    case 'i':
    case 'u':
    case 'x':
    case 'X':
    case 'o':
    case 'e':
    case 'E':
    case 'f':
    case 'F':
    case 'g':
    case 'G':
      break;
    default:
      return Error{fmt::format("unsupported format character '{}'",
                               printable(std::string_view(&spec.type, 1)))};
  }
  if (value.is_undefined()) return undefined_error(value);
  const bool decimal = spec.type == 'd' || spec.type == 'i' || spec.type == 'u';
  const bool radix = spec.type == 'x' || spec.type == 'X' || spec.type == 'o';
  if (!value.is_number() || (radix && !value.is_integral())) {
    return Error{fmt::format("%{} format: a{} number is required, not {}", spec.type,
                             decimal ? " real"
                             : radix ? "n integer"
                                     : "",
                             type_name(value))};
  }
  if (spec.zero && spec.align == '>') {
    spec.align = '=';
    spec.fill.assign(1, '0');
  }
  if (!decimal && !radix) return pad(format_float(value.as_double(), spec), spec, '>');
  int64_t integer = value.as_int();
  if (value.is(Kind::Float)) {
    if (!(std::abs(value.as_double()) < 9.2e18)) {
      return Error{"cannot convert the float to a 64-bit integer"};
    }
    integer = static_cast<int64_t>(value.as_double());
  }
  std::string body = format_integer(integer, spec);
  if (spec.precision > 0) {  // at least so many digits
    const size_t start = body.find_first_of("0123456789abcdefABCDEF");
    const size_t digits = body.size() - start;
    if (digits < static_cast<size_t>(spec.precision)) {
      const std::string zeros(static_cast<size_t>(spec.precision) - digits, '0');
      body = fmt::format("{}{}{}", body.substr(0, start), zeros, body.substr(start));
    }
  }
  return pad(std::move(body), spec, '>');
}

}  // namespace

Result<Value> percent_format(Meter& meter, std::string_view format, const Value& values) {
  MeteredText out(meter);
  size_t next = 0;
  const auto take_value = [&]() -> Result<Value> {
    if (!values.is(Kind::Tuple)) {
      if (next++ == 0) return values;
    } else if (next < values.list().items.size()) {
      return values.list().items[next++];
    }
    return Error{"not enough arguments for format string"};
  };
  const auto take_star = [&](int64_t limit) -> Result<int64_t> {
    const Value value = KTX_TRY(take_value());
    if (!value.is_integral()) return Error{"* wants int"};
    if (value.as_int() > limit || value.as_int() < -limit) {
      return Error{fmt::format("a format's number is above {}", limit)};
    }
    return value.as_int();
  };
  while (!format.empty()) {
    const size_t percent = std::min(format.find('%'), format.size());
    KTX_TRY(out.append(format.substr(0, percent)));
    format.remove_prefix(percent);
    if (format.empty()) break;
    format.remove_prefix(1);
    if (!format.empty() && format[0] == '%') {
      KTX_TRY(out.append("%"));
      format.remove_prefix(1);
      continue;
    }
    PercentConversion conversion = KTX_TRY(parse_conversion(format));
    if (conversion.star_width) {
      conversion.spec.width = KTX_TRY(take_star(kMaxFormatWidth));
      if (conversion.spec.width < 0) {
        conversion.spec.align = '<';
        conversion.spec.width = -conversion.spec.width;
      }
    }
    if (conversion.star_precision) {
      conversion.spec.precision = std::max<int64_t>(0, KTX_TRY(take_star(kMaxFormatPrecision)));
    }
    Value value;
    if (conversion.has_name) {
      if (!values.is(Kind::Dict)) return Error{"format requires a mapping"};
      const Value* found = values.dict().find(conversion.name);
      if (found == nullptr) {
        return Error{fmt::format("the format's key '{}' is missing", printable(conversion.name))};
      }
      value = *found;
      next = 1;
    } else {
      value = KTX_TRY(take_value());
    }
    KTX_TRY(out.append(KTX_TRY(convert_percent(meter, value, conversion.spec))));
  }
  const bool all_used = values.is(Kind::Tuple) ? next >= values.list().items.size()
                                               : next > 0 || values.is(Kind::Dict) ||
                                                     values.is(Kind::List) || values.is_undefined();
  if (!all_used) return Error{"not all arguments converted during string formatting"};
  return make_string(meter, out.take());
}

Result<std::string> format_value(Meter& meter, const Value& value, std::string_view text) {
  if (text.empty()) return to_str(meter, value);
  if (value.is_undefined()) return undefined_error(value);
  const Spec spec = KTX_TRY(parse_spec(text));
  const auto wrong_type = [&] {
    return Error{fmt::format("Unknown format code '{}' for object of type '{}'", spec.type,
                             type_name(value))};
  };
  if (value.is_string()) {
    if (spec.type != 0 && spec.type != 's') return wrong_type();
    if (spec.align == '=' && !spec.zero) {
      return Error{"'=' alignment not allowed in string format specifier"};
    }
    Spec adjusted = spec;
    if (spec.align == '=') adjusted.align = '<';
    return pad(cut(value.text(), spec.precision), adjusted, '<');
  }
  if (!value.is_number()) {
    return Error{
        fmt::format("unsupported format string passed to {}.__format__", type_name(value))};
  }
  if (value.is(Kind::Bool) && spec.type == 0) {
    return pad(KTX_TRY(to_str(meter, value)), spec, '<');
  }
  const bool as_float =
      spec.type != 0 && std::string_view("eEfFgG%").find(spec.type) != std::string_view::npos;
  if (value.is_integral() && !as_float) {
    if (spec.type == 's') return wrong_type();
    if (spec.precision >= 0) return Error{"Precision not allowed in integer format specifier"};
    if (spec.type == 'c') {
      if (value.as_int() < 0 || value.as_int() > 0x10FFFF) return Error{"%c arg not in range"};
      std::string character;
      append_code_point(character, static_cast<char32_t>(value.as_int()));
      return pad(std::move(character), spec, '<');
    }
    return pad(format_integer(value.as_int(), spec), spec, '>');
  }
  if (!as_float && spec.type != 0 && spec.type != 'n') return wrong_type();
  return pad(format_float(value.as_double(), spec), spec, '>');
}

namespace {

class BraceFormatter {
 public:
  BraceFormatter(Interpreter& in, Meter& meter, const Args& args)
      : in_(in), meter_(meter), args_(args) {}

  Result<std::string> run(std::string_view format, int depth) {
    if (depth > 2) return Error{"Max string recursion exceeded"};
    MeteredText out(meter_);
    while (!format.empty()) {
      const size_t brace = std::min(format.find_first_of("{}"), format.size());
      KTX_TRY(out.append(format.substr(0, brace)));
      format.remove_prefix(brace);
      if (format.empty()) break;
      if (format.size() > 1 && format[1] == format[0]) {
        KTX_TRY(out.append(format.substr(0, 1)));
        format.remove_prefix(2);
        continue;
      }
      if (format[0] == '}') return Error{"Single '}' encountered in format string"};
      size_t end = 1;
      for (int open = 1; open > 0; ++end) {
        if (end >= format.size()) return Error{"expected '}' before end of string"};
        if (format[end] == '{') ++open;
        if (format[end] == '}') --open;
      }
      KTX_TRY(out.append(KTX_TRY(field(format.substr(1, end - 2), depth))));
      format.remove_prefix(end);
    }
    return out.take();
  }

 private:
  // name[.attribute|[item]]…[!s|!r][:spec]
  Result<std::string> field(std::string_view text, int depth) {
    const size_t mark = std::min(text.find_first_of("!:"), text.size());
    Value value = KTX_TRY(lookup(text.substr(0, mark)));
    text.remove_prefix(mark);
    if (!text.empty() && text[0] == '!') {
      if (text.size() < 2 || (text.size() > 2 && text[2] != ':')) {
        return Error{"expected ':' after conversion specifier"};
      }
      if (text[1] != 's' && text[1] != 'r' && text[1] != 'a') {
        return Error{"Unknown conversion specifier"};
      }
      value = make_string(meter_, text[1] == 's' ? KTX_TRY(to_str(meter_, value))
                                                 : KTX_TRY(to_repr(meter_, value)));
      text.remove_prefix(2);
    }
    if (!text.empty()) text.remove_prefix(1);
    return format_value(meter_, value, KTX_TRY(run(text, depth + 1)));
  }

  Result<Value> lookup(std::string_view path) {
    const size_t mark = std::min(path.find_first_of(".["), path.size());
    const std::string_view name = path.substr(0, mark);
    path.remove_prefix(mark);
    Value value = KTX_TRY(argument(name));
    while (!path.empty()) {
      const bool is_item = path[0] == '[';
      path.remove_prefix(1);
      const size_t end = is_item ? path.find(']') : path.find_first_of(".[");
      if (is_item && end == std::string_view::npos) return Error{"Missing ']' in format string"};
      const std::string_view key = path.substr(0, end);
      path.remove_prefix(std::min(path.size(), key.size() + (is_item ? 1 : 0)));
      if (is_item) {
        int64_t index = 0;
        std::string_view rest = key;
        const bool number = !key.empty() && key.find_first_not_of("0123456789") == key.npos;
        if (number) index = KTX_TRY(take_number(rest, INT64_MAX / 16));
        const Value item = number ? Value::integer(index) : make_string(meter_, std::string(key));
        value = KTX_TRY(item_of(meter_, value, item));
      } else {
        value = KTX_TRY(in_.attribute(value, key));
      }
      if (value.is_undefined()) return undefined_error(value);
    }
    return value;
  }

  Result<Value> argument(std::string_view name) {
    const bool number = name.find_first_not_of("0123456789") == name.npos;
    if (!number) {
      for (const auto& [key, value] : args_.named) {
        if (key == name) return value;
      }
      return Error{fmt::format("the format's key '{}' is missing", printable(name))};
    }
    if (name.empty() != automatic_ && numbered_) {
      return Error{"cannot switch between automatic and manual field numbering"};
    }
    automatic_ = name.empty();
    numbered_ = true;
    std::string_view rest = name;
    const int64_t index = name.empty() ? next_++ : KTX_TRY(take_number(rest, kMaxFormatWidth));
    if (index >= static_cast<int64_t>(args_.positional.size())) {
      return Error{
          fmt::format("Replacement index {} out of range for positional args tuple", index)};
    }
    return args_.positional[static_cast<size_t>(index)];
  }

  Interpreter& in_;
  Meter& meter_;
  const Args& args_;
  int64_t next_ = 0;
  bool automatic_ = false, numbered_ = false;
};

}  // namespace

Result<Value> brace_format(Interpreter& in, Meter& meter, std::string_view format,
                           const Args& args) {
  std::string text = KTX_TRY(BraceFormatter(in, meter, args).run(format, 0));
  return make_string(meter, std::move(text));
}

}  // namespace ktx::text::jinja

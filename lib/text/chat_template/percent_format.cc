// '%s is %.2f' % (a, b) (jinja_format.h).
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "lib/support/strings.h"
#include "lib/text/chat_template/format_spec.h"
#include "lib/text/chat_template/jinja_format.h"
#include "lib/text/chat_template/jinja_print.h"
#include "lib/text/chat_template/unicode_text.h"

namespace ktx::text::jinja {
namespace {

// One %-conversion: everything after the '%'.
struct PercentConversion {
  std::string name;  // %(name)s
  bool has_name = false;
  FormatSpec spec;
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
  FormatSpec& spec = conversion.spec;
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

Result<std::string> convert_percent(Meter& meter, const Value& value, FormatSpec spec) {
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
  if (value.is(Kind::WideInt)) return pad(value.text(), spec, '>');
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

Result<Value> percent_format(Meter& meter, const Value& whole, const Value& values) {
  std::string_view format = whole.text();
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
    KTX_TRY(out.append(whole.string(), format.substr(0, percent)));
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
    KTX_TRY(out.append(KTX_TRY(convert_percent(meter, value, conversion.spec)), value.outside()));
  }
  const bool all_used = values.is(Kind::Tuple) ? next >= values.list().items.size()
                                               : next > 0 || values.is(Kind::Dict) ||
                                                     values.is(Kind::List) || values.is_undefined();
  if (!all_used) return Error{"not all arguments converted during string formatting"};
  return out.take_string();
}

}  // namespace ktx::text::jinja

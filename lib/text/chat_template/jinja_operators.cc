#include "lib/text/chat_template/jinja_operators.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "lib/support/escape_html.h"
#include "lib/text/chat_template/jinja_format.h"

namespace ktx::text::jinja {
namespace {

constexpr const char* kSymbols[] = {"+", "-", "*", "/", "//", "%", "** or pow()", "and", "or"};
// Bytes that a Value in a vector takes.
constexpr int64_t kItemBytes = sizeof(Value);

Error overflow() {
  return Error{"the integer result does not fit in 64 bits"};
}

Error unsupported(BinaryOp op, const Value& a, const Value& b) {
  return Error{fmt::format("unsupported operand type(s) for {}: '{}' and '{}'",
                           kSymbols[static_cast<int>(op)], type_name(a), type_name(b))};
}

Result<Value> power(int64_t base, int64_t exponent) {
  if (exponent < 0) {
    if (base == 0) return Error{"0.0 cannot be raised to a negative power"};
    return Value::real(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
  }
  int64_t result = 1;
  while (exponent > 0) {
    if ((exponent & 1) != 0 && __builtin_mul_overflow(result, base, &result)) return overflow();
    exponent >>= 1;
    if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) return overflow();
  }
  return Value::integer(result);
}

Result<Value> integer_arithmetic(BinaryOp op, int64_t a, int64_t b) {
  int64_t result = 0;
  switch (op) {
    case BinaryOp::Add:
      if (__builtin_add_overflow(a, b, &result)) return overflow();
      return Value::integer(result);
    case BinaryOp::Subtract:
      if (__builtin_sub_overflow(a, b, &result)) return overflow();
      return Value::integer(result);
    case BinaryOp::Multiply:
      if (__builtin_mul_overflow(a, b, &result)) return overflow();
      return Value::integer(result);
    case BinaryOp::Divide:
      if (b == 0) return Error{"division by zero"};
      return Value::real(
          static_cast<double>(static_cast<long double>(a) / static_cast<long double>(b)));
    case BinaryOp::FloorDivide:
    case BinaryOp::Modulo: {
      if (b == 0) return Error{"integer division or modulo by zero"};
      if (b == -1) {  // INT64_MIN / -1 traps
        if (op == BinaryOp::Modulo) return Value::integer(0);
        if (__builtin_sub_overflow(int64_t{0}, a, &result)) return overflow();
        return Value::integer(result);
      }
      const int64_t remainder = a % b;
      const bool adjust = remainder != 0 && (remainder < 0) != (b < 0);
      if (op == BinaryOp::Modulo) return Value::integer(adjust ? remainder + b : remainder);
      return Value::integer(a / b - (adjust ? 1 : 0));
    }
    default:
      return power(a, b);
  }
}

Result<Value> float_arithmetic(BinaryOp op, double a, double b) {
  switch (op) {
    case BinaryOp::Add:
      return Value::real(a + b);
    case BinaryOp::Subtract:
      return Value::real(a - b);
    case BinaryOp::Multiply:
      return Value::real(a * b);
    case BinaryOp::Divide:
      if (b == 0) return Error{"float division by zero"};
      return Value::real(a / b);
    case BinaryOp::FloorDivide:
    case BinaryOp::Modulo: {
      if (b == 0) return Error{"float modulo by zero"};
      double remainder = std::fmod(a, b);
      if (remainder == 0) {
        remainder = std::copysign(0.0, b);
      } else if ((remainder < 0) != (b < 0)) {
        remainder += b;
      }
      if (op == BinaryOp::Modulo) return Value::real(remainder);
      const double quotient = (a - remainder) / b;
      if (quotient == 0) return Value::real(std::copysign(0.0, a / b));
      const double floored = std::floor(quotient);
      return Value::real(quotient - floored > 0.5 ? floored + 1 : floored);
    }
    default: {
      if (a == 0 && b < 0) return Error{"0.0 cannot be raised to a negative power"};
      if (a < 0 && std::isfinite(a) && std::isfinite(b) && std::floor(b) != b) {
        return Error{"a negative number cannot be raised to a fraction"};
      }
      const double result = std::pow(a, b);
      if (std::isinf(result) && std::isfinite(a) && std::isfinite(b)) {
        return Error{"the result of ** is out of range"};
      }
      return Value::real(result);
    }
  }
}

Result<Value> add_strings(Meter& meter, const StringObject& a, const StringObject& b) {
  TextSpans outside;
  const auto add = [&](const StringObject& string, size_t at, size_t bytes) {
    if (bytes == string.text.size()) {
      add_spans(outside, at, string.spans, 0, bytes);
    } else if (string.outside) {
      add_span(outside, at, at + bytes);  // escaped
    }
  };
  const bool escapes = a.markup != b.markup;
  const std::string left = escapes && !a.markup ? escape_html(a.text) : a.text;
  const std::string right = escapes && !b.markup ? escape_html(b.text) : b.text;
  add(a, 0, left.size());
  add(b, left.size(), right.size());
  return make_string(meter, left + right, a.markup || b.markup, std::move(outside));
}

Result<Value> repeat(Meter& meter, const Value& value, int64_t times) {
  times = std::max<int64_t>(times, 0);
  const int64_t unit = value.is_string()
                           ? static_cast<int64_t>(value.text().size())
                           : static_cast<int64_t>(value.list().items.size()) * kItemBytes;
  int64_t bytes = 0;
  if (__builtin_mul_overflow(unit, times, &bytes)) {
    bytes = std::numeric_limits<int64_t>::max();
  }
  KTX_TRY(meter.reserve(bytes));
  if (unit == 0) times = 0;
  KTX_TRY(meter.step(bytes / 64));
  if (value.is_string()) {
    std::string out;
    out.reserve(static_cast<size_t>(bytes));
    for (int64_t i = 0; i < times; ++i) out += value.text();
    TextSpans outside;
    if (value.outside()) outside = {{0, out.size()}};
    if (out.empty()) outside.clear();
    return make_string(meter, std::move(out), value.string().markup, std::move(outside));
  }
  std::vector<Value> items;
  items.reserve(static_cast<size_t>(bytes / kItemBytes));
  for (int64_t i = 0; i < times; ++i) {
    items.insert(items.end(), value.list().items.begin(), value.list().items.end());
  }
  return value.is(Kind::List) ? make_list(meter, std::move(items))
                              : make_tuple(meter, std::move(items));
}

Result<Value> add_lists(Meter& meter, const Value& a, const Value& b) {
  std::vector<Value> items = a.list().items;
  items.insert(items.end(), b.list().items.begin(), b.list().items.end());
  return a.is(Kind::List) ? make_list(meter, std::move(items))
                          : make_tuple(meter, std::move(items));
}

}  // namespace

bool is_list_or_tuple(const Value& value) {
  return value.is(Kind::List) || value.is(Kind::Tuple);
}

Result<Value> apply_binary(Meter& meter, BinaryOp op, const Value& a, const Value& b) {
  KTX_TRY(meter.step(a.weight() + b.weight()));
  if (op == BinaryOp::Modulo && a.is_string()) return percent_format(meter, a, b);
  if (a.is_undefined()) return undefined_error(a);
  if (b.is_undefined()) return undefined_error(b);
  if (a.is_integral() && b.is_integral()) return integer_arithmetic(op, a.as_int(), b.as_int());
  if (a.is_number() && b.is_number()) return float_arithmetic(op, a.as_double(), b.as_double());
  if (op == BinaryOp::Add) {
    if (a.is_string() && b.is_string()) return add_strings(meter, a.string(), b.string());
    if (is_list_or_tuple(a) && a.kind() == b.kind()) return add_lists(meter, a, b);
    if (a.is_string() || is_list_or_tuple(a)) {
      return Error{
          fmt::format("can only concatenate {0} (not \"{1}\") to {0}", type_name(a), type_name(b))};
    }
  }
  if (op == BinaryOp::Multiply) {
    if ((a.is_string() || is_list_or_tuple(a)) && b.is_integral()) {
      return repeat(meter, a, b.as_int());
    }
    if ((b.is_string() || is_list_or_tuple(b)) && a.is_integral()) {
      return repeat(meter, b, a.as_int());
    }
  }
  return unsupported(op, a, b);
}

Result<Value> apply_unary(UnaryOp op, const Value& value) {
  if (op == UnaryOp::Not) return Value::boolean(!truthy(value));
  if (value.is_undefined()) return undefined_error(value);
  if (value.is_real()) {
    return op == UnaryOp::Plus ? value : Value::real(-value.as_double());
  }
  if (value.is_integral()) {
    int64_t result = value.as_int();
    if (op == UnaryOp::Negate && __builtin_sub_overflow(int64_t{0}, result, &result)) {
      return overflow();
    }
    return Value::integer(result);
  }
  return Error{fmt::format("bad operand type for unary {}: '{}'", op == UnaryOp::Negate ? '-' : '+',
                           type_name(value))};
}

}  // namespace ktx::text::jinja

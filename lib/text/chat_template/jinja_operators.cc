#include "lib/text/chat_template/jinja_operators.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "lib/support/strings.h"
#include "lib/text/chat_template/jinja_format.h"
#include "lib/text/chat_template/jinja_print.h"
#include "lib/text/chat_template/unicode_text.h"

namespace ktx::text::jinja {
namespace {

constexpr const char* kSymbols[] = {"+", "-", "*", "/", "//", "%", "** or pow()", "and", "or"};
constexpr const char* kCompareSymbols[] = {"==", "!=", "<", "<=", ">", ">=", "in", "not in"};
// Bytes that a Value in a vector takes, and a small string with it.
constexpr int64_t kValueBytes = sizeof(Value);
constexpr int64_t kCharacterBytes = sizeof(Value) + sizeof(StringObject) + 32;

Error overflow() {
  return Error{"the integer result does not fit in 64 bits"};
}

Error unsupported(BinaryOp op, const Value& a, const Value& b) {
  return Error{fmt::format("unsupported operand type(s) for {}: '{}' and '{}'",
                           kSymbols[static_cast<int>(op)], type_name(a), type_name(b))};
}

// -1, 0, 1; exact for an int against a float (long double holds both). NaN: 2.
int compare_numbers(const Value& a, const Value& b) {
  if (a.is_integral() && b.is_integral()) {
    return a.as_int() < b.as_int() ? -1 : a.as_int() > b.as_int() ? 1 : 0;
  }
  const auto wide = [](const Value& v) {
    return v.is_integral() ? static_cast<long double>(v.as_int())
                           : static_cast<long double>(v.as_double());
  };
  const long double x = wide(a), y = wide(b);
  return x < y ? -1 : x > y ? 1 : x == y ? 0 : 2;
}

Result<bool> equal_items(Meter& meter, const std::vector<Value>& a, const std::vector<Value>& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (!KTX_TRY(equals(meter, a[i], b[i]))) return false;
  }
  return true;
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
  if (a.markup == b.markup) return make_string(meter, a.text + b.text, a.markup);
  return make_string(meter, a.markup ? a.text + escape_html(b.text) : escape_html(a.text) + b.text,
                     true);
}

Result<Value> repeat(Meter& meter, const Value& value, int64_t times) {
  times = std::max<int64_t>(times, 0);
  const int64_t unit = value.is_string()
                           ? static_cast<int64_t>(value.text().size())
                           : static_cast<int64_t>(value.list().items.size()) * kValueBytes;
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
    return make_string(meter, std::move(out), value.string().markup);
  }
  std::vector<Value> items;
  items.reserve(static_cast<size_t>(bytes / kValueBytes));
  for (int64_t i = 0; i < times; ++i) {
    items.insert(items.end(), value.list().items.begin(), value.list().items.end());
  }
  return value.is(Kind::List) ? make_list(meter, std::move(items))
                              : make_tuple(meter, std::move(items));
}

bool is_list_or_tuple(const Value& v) {
  return v.is(Kind::List) || v.is(Kind::Tuple);
}

Result<Value> add_lists(Meter& meter, const Value& a, const Value& b) {
  std::vector<Value> items = a.list().items;
  items.insert(items.end(), b.list().items.begin(), b.list().items.end());
  return a.is(Kind::List) ? make_list(meter, std::move(items))
                          : make_tuple(meter, std::move(items));
}

Result<int64_t> slice_bound(const Value& value) {
  if (value.is_undefined()) return undefined_error(value);
  if (!value.is_integral()) {
    return Error{"slice indices must be integers or None or have an __index__ method"};
  }
  return value.as_int();
}

bool is_ordered_pair(const Value& a, const Value& b) {
  return (a.is_number() && b.is_number()) || (a.is_string() && b.is_string()) ||
         (a.is(Kind::List) && b.is(Kind::List)) || (a.is(Kind::Tuple) && b.is(Kind::Tuple));
}

Result<bool> ordered(Meter& meter, CompareOp op, const Value& a, const Value& b) {
  if (a.is_undefined()) return undefined_error(a);
  if (b.is_undefined()) return undefined_error(b);
  if (!is_ordered_pair(a, b)) {
    return Error{fmt::format("'{}' not supported between instances of '{}' and '{}'",
                             kCompareSymbols[static_cast<int>(op)], type_name(a), type_name(b))};
  }
  int order = 0;
  if (a.is_number()) {
    order = compare_numbers(a, b);
    if (order == 2) return false;
  } else if (a.is_string()) {
    order = a.text().compare(b.text());  // UTF-8 bytes order as code points do
  } else {
    const std::vector<Value>& x = a.list().items;
    const std::vector<Value>& y = b.list().items;
    for (size_t i = 0; i < std::min(x.size(), y.size()); ++i) {
      if (!KTX_TRY(equals(meter, x[i], y[i]))) return ordered(meter, op, x[i], y[i]);
    }
    order = x.size() < y.size() ? -1 : x.size() > y.size() ? 1 : 0;
  }
  switch (op) {
    case CompareOp::Less:
      return order < 0;
    case CompareOp::LessEqual:
      return order <= 0;
    case CompareOp::Greater:
      return order > 0;
    default:
      return order >= 0;
  }
}

}  // namespace

bool truthy(const Value& value) {
  switch (value.kind()) {
    case Kind::Undefined:
    case Kind::None:
      return false;
    case Kind::Bool:
    case Kind::Int:
      return value.as_int() != 0;
    case Kind::Float:
      return value.as_double() != 0;
    case Kind::String:
      return !value.text().empty();
    case Kind::List:
    case Kind::Tuple:
    case Kind::DictView:
      return !value.list().items.empty();
    case Kind::Dict:
      return !value.dict().entries.empty();
    case Kind::Range:
      return value.range().size() != 0;
    default:
      return true;
  }
}

Result<bool> equals(Meter& meter, const Value& a, const Value& b) {
  KTX_TRY(meter.step());
  if (a.is_number() && b.is_number()) return compare_numbers(a, b) == 0;
  if (a.kind() != b.kind()) return false;
  if (a.same_object(b)) return true;
  switch (a.kind()) {
    case Kind::Undefined:
    case Kind::None:
      return true;
    case Kind::String:
      KTX_TRY(meter.step(static_cast<int64_t>(a.text().size() / 64)));
      return a.text() == b.text();
    case Kind::List:
    case Kind::Tuple:
      return equal_items(meter, a.list().items, b.list().items);
    case Kind::Dict: {
      if (a.dict().entries.size() != b.dict().entries.size()) return false;
      for (const DictObject::Entry& entry : a.dict().entries) {
        const Value* other = KTX_TRY(b.dict().find(meter, entry.key));
        if (other == nullptr || !KTX_TRY(equals(meter, entry.value, *other))) return false;
      }
      return true;
    }
    case Kind::Range: {
      const RangeObject& x = a.range();
      const RangeObject& y = b.range();
      return x.size() == y.size() &&
             (x.size() == 0 || (x.start == y.start && (x.size() == 1 || x.step == y.step)));
    }
    default:
      return false;
  }
}

Result<bool> compare(Meter& meter, CompareOp op, const Value& a, const Value& b) {
  switch (op) {
    case CompareOp::Equal:
      return equals(meter, a, b);
    case CompareOp::NotEqual:
      return !KTX_TRY(equals(meter, a, b));
    case CompareOp::In:
      return contains(meter, b, a);
    case CompareOp::NotIn:
      return !KTX_TRY(contains(meter, b, a));
    default:
      KTX_TRY(meter.step(a.weight()));
      return ordered(meter, op, a, b);
  }
}

Result<bool> contains(Meter& meter, const Value& container, const Value& item) {
  KTX_TRY(meter.step(container.weight()));
  switch (container.kind()) {
    case Kind::String:
      if (item.is_undefined()) return undefined_error(item);
      if (!item.is_string()) {
        return Error{
            fmt::format("'in <string>' requires string as left operand, not {}", type_name(item))};
      }
      return find_text(container.text(), item.text()) != std::string_view::npos;
    case Kind::Dict:
      return KTX_TRY(container.dict().find(meter, item)) != nullptr;
    case Kind::Undefined:
      return false;
    default:
      for (const Value& candidate : KTX_TRY(items_of(meter, container))) {
        if (KTX_TRY(equals(meter, candidate, item))) return true;
      }
      return false;
  }
}

Result<Value> apply_binary(Meter& meter, BinaryOp op, const Value& a, const Value& b) {
  KTX_TRY(meter.step(a.weight() + b.weight()));
  if (op == BinaryOp::Modulo && a.is_string()) return percent_format(meter, a.text(), b);
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
  if (value.is(Kind::Float)) {
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

Value missing_attribute(const Value& object, std::string_view name) {
  const std::string what = object.is_none() ? "None"
                           : object.is(Kind::Namespace)
                               ? "jinja2.utils.Namespace object"
                               : fmt::format("{} object", type_name(object));
  return make_undefined(fmt::format("'{}' has no attribute '{}'", what, printable(name)));
}

Result<Value> item_of(Meter& meter, const Value& object, const Value& key) {
  if (object.is_undefined()) return undefined_error(object);
  if (object.is(Kind::Dict)) {
    const bool hashable = !key.is(Kind::List) && !key.is(Kind::Dict) && !key.is(Kind::DictView);
    if (hashable) {
      KTX_TRY(meter.step(key.weight()));
      if (const Value* found = KTX_TRY(object.dict().find(meter, key))) return *found;
    }
  } else if (key.is_integral()) {
    int64_t index = key.as_int();
    const bool indexed = object.is_string() || is_list_or_tuple(object) || object.is(Kind::Range);
    const int64_t size = indexed ? KTX_TRY(length_of(object)) : 0;
    if (index < 0) index += size;
    if (index >= 0 && index < size) {
      if (object.is(Kind::Range)) return Value::integer(object.range().at(index));
      if (!object.is_string()) return object.list().items[static_cast<size_t>(index)];
      const std::string& text = object.text();
      size_t offset = static_cast<size_t>(index);
      if (!object.string().ascii()) {
        KTX_TRY(meter.step(index / 32));
        offset = code_point_offset(text, index);
      }
      const std::string_view rest = std::string_view(text).substr(offset);
      return make_string(meter, std::string(rest.substr(0, code_point_bytes(rest))),
                         object.string().markup);
    }
  }
  if (key.is_string()) return missing_attribute(object, key.text());
  const std::string_view type = object.is_none() ? "None" : type_name(object);
  return make_undefined(fmt::format("{}{} has no element {}", type,
                                    object.is_none() ? "" : " object",
                                    printable(KTX_TRY(to_repr(meter, key)))));
}

Result<Value> slice_of(Meter& meter, const Value& object, const Value& start_value,
                       const Value& stop_value, const Value& step_value) {
  if (object.is_undefined()) return undefined_error(object);
  if (!object.is_string() && !is_list_or_tuple(object) && !object.is(Kind::Range)) {
    return Error{object.is(Kind::Dict)
                     ? "unhashable type: 'slice'"
                     : fmt::format("'{}' object is not subscriptable", type_name(object))};
  }
  const int64_t size = KTX_TRY(length_of(object));
  const int64_t step = step_value.is_none() ? 1 : KTX_TRY(slice_bound(step_value));
  if (step == 0) return Error{"slice step cannot be zero"};
  const auto bound = [&](const Value& value, int64_t open) -> Result<int64_t> {
    if (value.is_none()) return open;
    int64_t at = KTX_TRY(slice_bound(value));
    if (at < 0) at += size;  // no overflow: size >= 0
    return std::clamp<int64_t>(at, step < 0 ? -1 : 0, step < 0 ? size - 1 : size);
  };
  const int64_t start = KTX_TRY(bound(start_value, step < 0 ? size - 1 : 0));
  const int64_t stop = KTX_TRY(bound(stop_value, step < 0 ? -1 : size));
  // How many items; the step may be as small as INT64_MIN.
  const uint64_t stride =
      step < 0 ? uint64_t{0} - static_cast<uint64_t>(step) : static_cast<uint64_t>(step);
  const int64_t span = step < 0 ? start - stop : stop - start;
  const int64_t count =
      span <= 0 ? 0 : static_cast<int64_t>((static_cast<uint64_t>(span) - 1) / stride) + 1;
  KTX_TRY(meter.step(1 + count / 16));
  if (object.is_string()) {
    const std::string& text = object.text();
    const bool markup = object.string().markup;
    const bool ascii = object.string().ascii();
    if (!ascii) KTX_TRY(meter.step(static_cast<int64_t>(text.size() / 32)));
    if (step == 1) {
      const size_t from = ascii ? static_cast<size_t>(start) : code_point_offset(text, start);
      const size_t bytes = ascii ? static_cast<size_t>(count)
                                 : code_point_offset(std::string_view(text).substr(from), count);
      return make_string(meter, text.substr(from, bytes), markup);
    }
    std::vector<std::string_view> points;
    if (!ascii) {
      KTX_TRY(meter.reserve(static_cast<int64_t>(text.size() * sizeof(std::string_view))));
      points = code_points(text);
    }
    std::string out;
    for (int64_t i = 0; i < count; ++i) {
      const size_t at = static_cast<size_t>(start + i * step);
      out += ascii ? std::string_view(text).substr(at, 1) : points[at];
    }
    return make_string(meter, std::move(out), markup);
  }
  KTX_TRY(meter.reserve(count * kValueBytes));
  std::vector<Value> items;
  items.reserve(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    const int64_t at = start + i * step;
    items.push_back(object.is(Kind::Range) ? Value::integer(object.range().at(at))
                                           : object.list().items[static_cast<size_t>(at)]);
  }
  return object.is(Kind::Tuple) ? make_tuple(meter, std::move(items))
                                : make_list(meter, std::move(items));
}

Result<int64_t> length_of(const Value& value) {
  switch (value.kind()) {
    case Kind::Undefined:
      return 0;
    case Kind::String:
      return value.string().length();
    case Kind::List:
    case Kind::Tuple:
    case Kind::DictView:
      return static_cast<int64_t>(value.list().items.size());
    case Kind::Dict:
      return static_cast<int64_t>(value.dict().entries.size());
    case Kind::Range:
      return value.range().size();
    default:
      return Error{fmt::format("object of type '{}' has no len()", type_name(value))};
  }
}

bool is_iterable(const Value& value) {
  switch (value.kind()) {
    case Kind::None:
    case Kind::Bool:
    case Kind::Int:
    case Kind::Float:
    case Kind::Namespace:
    case Kind::Callable:
      return false;
    default:
      return true;
  }
}

Result<std::vector<Value>> items_of(Meter& meter, const Value& value) {
  std::vector<Value> items;
  switch (value.kind()) {
    case Kind::Undefined:
      return items;
    case Kind::String: {
      KTX_TRY(meter.step(value.string().length()));
      KTX_TRY(meter.reserve(value.string().length() * kCharacterBytes));
      for (const std::string_view point : code_points(value.text())) {
        items.push_back(make_string(meter, std::string(point)));
      }
      return items;
    }
    case Kind::List:
    case Kind::Tuple:
    case Kind::DictView:
      KTX_TRY(meter.step(value.weight()));
      KTX_TRY(meter.reserve(static_cast<int64_t>(value.list().items.size()) * kValueBytes));
      return value.list().items;
    case Kind::Dict:
      KTX_TRY(meter.step(value.weight()));
      for (const DictObject::Entry& entry : value.dict().entries) items.push_back(entry.key);
      return items;
    case Kind::Range:
      KTX_TRY(meter.step(1 + value.range().size() / 4));
      KTX_TRY(meter.reserve(value.range().size() * kValueBytes));
      for (int64_t i = 0; i < value.range().size(); ++i) {
        items.push_back(Value::integer(value.range().at(i)));
      }
      return items;
    case Kind::Generator: {
      GeneratorObject& generator = value.generator();
      items.assign(generator.items.begin() + static_cast<std::ptrdiff_t>(generator.next),
                   generator.items.end());
      generator.next = generator.items.size();
      KTX_TRY(meter.step(static_cast<int64_t>(items.size() / 4)));
      return items;
    }
    default:
      return Error{fmt::format("'{}' object is not iterable", type_name(value))};
  }
}

std::string escape_html(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '\'':
        out += "&#39;";
        break;
      case '"':
        out += "&#34;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

}  // namespace ktx::text::jinja

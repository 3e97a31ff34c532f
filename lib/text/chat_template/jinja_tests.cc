// Tests: `x is defined`, `n is divisibleby 3`, select('string'), …
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "lib/text/chat_template/jinja_builtins.h"
#include "lib/text/chat_template/jinja_operators.h"
#include "lib/text/chat_template/jinja_print.h"
#include "lib/text/chat_template/unicode_text.h"

namespace ktx::text::jinja {
namespace {

template <CompareOp op>
Result<Value> test_compare(Call& call) {
  return Value::boolean(KTX_TRY(compare(call.meter, op, call.self, call.args[0])));
}

template <Kind kind>
Result<Value> test_kind(Call& call) {
  return Value::boolean(call.self.is(kind));
}

Result<Value> test_defined(Call& call) {
  return Value::boolean(!call.self.is_undefined());
}

template <bool wanted>
Result<Value> test_bool(Call& call) {
  return Value::boolean(call.self.is(Kind::Bool) && call.self.as_bool() == wanted);
}

Result<Value> test_integer(Call& call) {
  return Value::boolean(call.self.is(Kind::Int) || call.self.is(Kind::WideInt));
}

Result<Value> test_number(Call& call) {
  return Value::boolean(call.self.is_number());
}

Result<Value> test_sequence(Call& call) {
  // What has a length and takes an index; an undefined does, in its way.
  switch (call.self.kind()) {
    case Kind::Undefined:
    case Kind::String:
    case Kind::List:
    case Kind::Tuple:
    case Kind::Dict:
    case Kind::Range:
      return Value::boolean(true);
    default:
      return Value::boolean(false);
  }
}

Result<Value> test_iterable(Call& call) {
  return Value::boolean(is_iterable(call.self));
}

Result<Value> test_callable(Call& call) {
  const Value& v = call.self;
  return Value::boolean(v.is(Kind::Callable) || v.is(Kind::Loop) || v.is_undefined());
}

Result<Value> test_sameas(Call& call) {
  const Value& a = call.self;
  const Value& b = call.args[0];
  if (a.kind() != b.kind()) return Value::boolean(false);
  if (a.shared() || b.shared()) {
    // Equal strings of a template are one object in Python, more often than not.
    const bool same = a.is_string() ? a.text() == b.text() : a.same_object(b);
    return Value::boolean(same);
  }
  return Value::boolean(KTX_TRY(equals(call.meter, a, b)));
}

Result<Value> remainder(Call& call, const Value& divisor) {
  return apply_binary(call.meter, BinaryOp::Modulo, call.self, divisor);
}

Result<Value> test_divisibleby(Call& call) {
  return Value::boolean(!truthy(KTX_TRY(remainder(call, call.args[0]))));
}

template <bool odd>
Result<Value> test_parity(Call& call) {
  const Value rest = KTX_TRY(remainder(call, Value::integer(2)));
  return Value::boolean(KTX_TRY(equals(call.meter, rest, Value::integer(odd ? 1 : 0))));
}

// At least one letter of that case and none of the other.
template <bool upper>
Result<Value> test_case(Call& call) {
  const std::string text = KTX_TRY(to_str(call.meter, call.self));
  bool any = false;
  for (std::string_view rest = text; !rest.empty();) {
    size_t bytes = 0;
    const char32_t c = decode_code_point(rest, &bytes);
    rest.remove_prefix(bytes);
    if (upper ? is_lower(c) : is_upper(c)) return Value::boolean(false);
    any = any || (upper ? is_upper(c) : is_lower(c));
  }
  return Value::boolean(any);
}

Result<Value> test_filter(Call& call) {
  return Value::boolean(call.self.is_string() && find_filter(call.self.text()) != nullptr);
}

Result<Value> test_test(Call& call) {
  return Value::boolean(call.self.is_string() && find_test(call.self.text()) != nullptr);
}

Result<Value> test_escaped(Call& call) {
  return Value::boolean(call.self.is_string() && call.self.string().markup);
}

constexpr Builtin kTests[] = {
    {"defined", "", test_defined},
    {"undefined", "", test_kind<Kind::Undefined>},
    {"none", "", test_kind<Kind::None>},
    {"boolean", "", test_kind<Kind::Bool>},
    {"true", "", test_bool<true>},
    {"false", "", test_bool<false>},
    {"integer", "", test_integer},
    {"float", "", test_kind<Kind::Float>},
    {"number", "", test_number},
    {"string", "", test_kind<Kind::String>},
    {"mapping", "", test_kind<Kind::Dict>},
    {"sequence", "", test_sequence},
    {"iterable", "", test_iterable},
    {"callable", "", test_callable},
    {"sameas", "other", test_sameas},
    {"escaped", "", test_escaped},
    {"in", "seq", test_compare<CompareOp::In>},
    {"divisibleby", "num", test_divisibleby},
    {"odd", "", test_parity<true>},
    {"even", "", test_parity<false>},
    {"lower", "", test_case<false>},
    {"upper", "", test_case<true>},
    {"filter", "", test_filter},
    {"test", "", test_test},
    {"==", "b", test_compare<CompareOp::Equal>},
    {"eq", "b", test_compare<CompareOp::Equal>},
    {"equalto", "b", test_compare<CompareOp::Equal>},
    {"!=", "b", test_compare<CompareOp::NotEqual>},
    {"ne", "b", test_compare<CompareOp::NotEqual>},
    {"<", "b", test_compare<CompareOp::Less>},
    {"lt", "b", test_compare<CompareOp::Less>},
    {"lessthan", "b", test_compare<CompareOp::Less>},
    {"<=", "b", test_compare<CompareOp::LessEqual>},
    {"le", "b", test_compare<CompareOp::LessEqual>},
    {">", "b", test_compare<CompareOp::Greater>},
    {"gt", "b", test_compare<CompareOp::Greater>},
    {"greaterthan", "b", test_compare<CompareOp::Greater>},
    {">=", "b", test_compare<CompareOp::GreaterEqual>},
    {"ge", "b", test_compare<CompareOp::GreaterEqual>},
};

}  // namespace

std::span<const Builtin> all_tests() {
  return kTests;
}

}  // namespace ktx::text::jinja

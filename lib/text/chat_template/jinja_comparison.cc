// Truth, equality, order and `in`, with Python's semantics (jinja_operators.h).
#include <fmt/format.h>

#include <algorithm>

#include "lib/text/chat_template/jinja_operators.h"
#include "lib/text/chat_template/unicode_text.h"

namespace ktx::text::jinja {
namespace {

constexpr const char* kCompareSymbols[] = {"==", "!=", "<", "<=", ">", ">=", "in", "not in"};

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
  if (x == y && a.is(Kind::WideInt) && b.is(Kind::WideInt)) {
    const int digits = a.text().compare(b.text());  // of the same length
    return x < 0 ? -digits : digits;
  }
  return x < y ? -1 : x > y ? 1 : x == y ? 0 : 2;
}

Result<bool> equal_items(Meter& meter, const std::vector<Value>& a, const std::vector<Value>& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (!KTX_TRY(equals(meter, a[i], b[i]))) return false;
  }
  return true;
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

}  // namespace ktx::text::jinja

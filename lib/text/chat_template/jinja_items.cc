// Indexing, slices, lengths and iteration, with Python's semantics (jinja_operators.h).
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

#include "lib/support/strings.h"
#include "lib/text/chat_template/jinja_operators.h"
#include "lib/text/chat_template/jinja_print.h"
#include "lib/text/chat_template/unicode_text.h"

namespace ktx::text::jinja {
namespace {

// Bytes that a Value in a vector takes, and a small string with it.
constexpr int64_t kValueBytes = sizeof(Value);
constexpr int64_t kCharacterBytes = sizeof(Value) + sizeof(StringObject) + 32;

Result<int64_t> slice_bound(const Value& value) {
  if (value.is_undefined()) return undefined_error(value);
  if (!value.is_integral()) {
    return Error{"slice indices must be integers or None or have an __index__ method"};
  }
  return value.as_int();
}

}  // namespace

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
      return make_part(meter, object.string(), offset, code_point_bytes(rest));
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
      return make_part(meter, object.string(), from, bytes);
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
    Value made = make_string(meter, std::move(out), markup);
    inherit_origin(made, object);
    return made;
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
    case Kind::WideInt:
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
        const auto begin = static_cast<size_t>(point.data() - value.text().data());
        items.push_back(make_part(meter, value.string(), begin, point.size()));
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

}  // namespace ktx::text::jinja

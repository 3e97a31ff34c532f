// Methods of lists, tuples, dicts and numbers. Methods that would change a list or dict are
// known and refused, as in HF's immutable sandbox.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "lib/text/chat_template/jinja_builtins.h"
#include "lib/text/chat_template/jinja_operators.h"
#include "lib/text/chat_template/jinja_print.h"

namespace ktx::text::jinja {
namespace {

Result<Value> list_count(Call& call) {
  int64_t count = 0;
  for (const Value& item : call.self.list().items) {
    if (KTX_TRY(equals(call.meter, item, call.args[0]))) ++count;
  }
  return Value::integer(count);
}

Result<Value> list_index(Call& call) {
  const std::vector<Value>& items = call.self.list().items;
  const auto size = static_cast<int64_t>(items.size());
  int64_t start = KTX_TRY(call.integer(1, 0)), stop = KTX_TRY(call.integer(2, size));
  if (start < 0) start = std::max<int64_t>(0, start + size);
  if (stop < 0) stop += size;
  for (int64_t i = start; i < std::min(stop, size); ++i) {
    if (KTX_TRY(equals(call.meter, items[static_cast<size_t>(i)], call.args[0]))) {
      return Value::integer(i);
    }
  }
  return Error{fmt::format("{} is not in the list", KTX_TRY(to_repr(call.meter, call.args[0])))};
}

Result<Value> list_copy(Call& call) {
  return make_list(call.meter, call.self.list().items);
}

Result<Value> dict_get(Call& call) {
  if (const Value* found = KTX_TRY(call.self.dict().find(call.meter, call.args[0]))) return *found;
  return call.has(1) ? call.args[1] : Value::none();
}

Result<Value> dict_keys(Call& call) {
  std::vector<Value> keys;
  for (const DictObject::Entry& entry : call.self.dict().entries) keys.push_back(entry.key);
  return make_view(call.meter, std::move(keys), "dict_keys");
}

Result<Value> dict_values(Call& call) {
  std::vector<Value> values;
  for (const DictObject::Entry& entry : call.self.dict().entries) values.push_back(entry.value);
  return make_view(call.meter, std::move(values), "dict_values");
}

Result<Value> dict_items(Call& call) {
  std::vector<Value> items;
  for (const DictObject::Entry& entry : call.self.dict().entries) {
    items.push_back(make_tuple(call.meter, {entry.key, entry.value}));
    KTX_TRY(call.meter.step());
  }
  return make_view(call.meter, std::move(items), "dict_items");
}

Result<Value> dict_copy(Call& call) {
  auto dict = new_dict(call.meter);
  for (const DictObject::Entry& entry : call.self.dict().entries) {
    KTX_TRY(dict->set(call.meter, entry.key, entry.value));
  }
  return make_dict(std::move(dict));
}

Result<Value> number_is_integer(Call& call) {
  const double value = call.self.as_double();
  return Value::boolean(std::isfinite(value) && std::floor(value) == value);
}

constexpr Builtin kListMethods[] = {
    {"count", "value", list_count}, {"index", "value start? stop?", list_index},
    {"copy", "", list_copy},        {"append", "*", nullptr},
    {"clear", "*", nullptr},        {"extend", "*", nullptr},
    {"insert", "*", nullptr},       {"pop", "*", nullptr},
    {"remove", "*", nullptr},       {"reverse", "*", nullptr},
    {"sort", "*", nullptr},
};

constexpr Builtin kTupleMethods[] = {
    {"count", "value", list_count},
    {"index", "value start? stop?", list_index},
};

constexpr Builtin kDictMethods[] = {
    {"get", "key default?", dict_get},
    {"keys", "", dict_keys},
    {"values", "", dict_values},
    {"items", "", dict_items},
    {"copy", "", dict_copy},
    {"clear", "*", nullptr},
    {"pop", "*", nullptr},
    {"popitem", "*", nullptr},
    {"setdefault", "*", nullptr},
    {"update", "*", nullptr},
};

constexpr Builtin kNumberMethods[] = {
    {"is_integer", "", number_is_integer},
};

}  // namespace

std::span<const Builtin> list_methods() {
  return kListMethods;
}
std::span<const Builtin> tuple_methods() {
  return kTupleMethods;
}
std::span<const Builtin> dict_methods() {
  return kDictMethods;
}
std::span<const Builtin> number_methods() {
  return kNumberMethods;
}

}  // namespace ktx::text::jinja

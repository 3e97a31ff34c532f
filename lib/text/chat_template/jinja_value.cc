#include "lib/text/chat_template/jinja_value.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <functional>

#include "lib/text/chat_template/jinja_operators.h"
#include "lib/text/chat_template/unicode_text.h"

namespace ktx::text::jinja {
namespace {

// Containers this small are searched one by one.
constexpr size_t kIndexFrom = 9;

size_t hash_text(std::string_view text) {
  return std::hash<std::string_view>{}(text);
}

// Equal keys have equal hashes (1, 1.0 and True are one key). Tuples hash by
// their length and first-level scalars only: what lies deeper is compared.
Result<size_t> hash_key(const Value& key, bool nested = false) {
  switch (key.kind()) {
    case Kind::String:
      return hash_text(key.text());
    case Kind::Bool:
    case Kind::Int:
    case Kind::WideInt:
    case Kind::Float:
      return std::hash<double>{}(key.as_double());
    case Kind::None:
      return size_t{0x9e37};
    case Kind::Tuple: {
      size_t hash = 0x7f4a + key.list().items.size();
      if (nested) return hash;
      for (const Value& item : key.list().items) hash = hash * 31 + KTX_TRY(hash_key(item, true));
      return hash;
    }
    case Kind::List:
    case Kind::Dict:
    case Kind::DictView:
      return Error{fmt::format("unhashable type: '{}'", type_name(key))};
    default:
      return std::hash<const void*>{}(key.shared().get());
  }
}

template <class T>
std::shared_ptr<T> make_sequence(Meter& meter, std::vector<Value> items) {
  auto object = std::make_shared<T>();
  object->items = std::move(items);
  charge(meter, *object,
         static_cast<int64_t>(sizeof(T) + object->items.capacity() * sizeof(Value)));
  int depth = 0;
  for (const Value& item : object->items) {
    depth = std::max(depth, item.depth());
    object->outside = object->outside || item.outside();
  }
  object->depth = depth + 1;
  if (object->depth > meter.limits.value_depth) meter.too_deep = true;
  return object;
}

}  // namespace

Status Meter::step(int64_t count) {
  steps += count;
  if (steps > limits.steps) {
    return Error{
        fmt::format("the template takes more than {} steps; it may never end", limits.steps)};
  }
  if (live_bytes > limits.live_bytes) {
    return Error{fmt::format("the template's values take more than {} bytes", limits.live_bytes)};
  }
  if (too_deep) {
    return Error{fmt::format("the template nests values more than {} deep", limits.value_depth)};
  }
  return {};
}

Status Meter::reserve(int64_t bytes) const {
  if (bytes > limits.live_bytes - live_bytes) {
    return Error{fmt::format("the template's values take more than {} bytes", limits.live_bytes)};
  }
  return {};
}

void charge(Meter& meter, Object& object, int64_t bytes) {
  object.meter = &meter;
  object.charged_bytes += bytes;
  meter.live_bytes += bytes;
}

const std::string& Value::text() const {
  return string().text;
}

const std::string* Value::undefined_story() const {
  if (kind_ != Kind::Undefined || !object_) return nullptr;
  return &static_cast<StringObject&>(*object_).text;
}

int64_t Value::weight() const {
  switch (kind_) {
    case Kind::String:
      return 1 + static_cast<int64_t>(text().size()) / 64;
    case Kind::List:
    case Kind::Tuple:
    case Kind::DictView:
      return 1 + static_cast<int64_t>(list().items.size()) / 4;
    case Kind::Dict:
      return 1 + static_cast<int64_t>(dict().entries.size()) / 4;
    default:
      return 1;
  }
}

int64_t StringObject::length() const {
  if (length_ < 0) length_ = count_code_points(text);
  return length_;
}

const Value* DictObject::find(std::string_view key) const {
  const auto matches = [&](const Entry& entry) {
    return entry.key.is_string() && entry.key.text() == key;
  };
  if (index.empty()) {
    const auto it = std::find_if(entries.begin(), entries.end(), matches);
    return it == entries.end() ? nullptr : &it->value;
  }
  const auto [begin, end] = index.equal_range(hash_text(key));
  for (auto it = begin; it != end; ++it) {
    if (matches(entries[it->second])) return &entries[it->second].value;
  }
  return nullptr;
}

Result<const Value*> DictObject::find(Meter& meter, const Value& key) const {
  const size_t hash = KTX_TRY(hash_key(key));
  if (key.is_string()) return find(key.text());
  if (index.empty()) {
    for (const Entry& entry : entries) {
      if (entry.hash == hash && KTX_TRY(equals(meter, entry.key, key))) return &entry.value;
    }
    return nullptr;
  }
  const auto [begin, end] = index.equal_range(hash);
  for (auto it = begin; it != end; ++it) {
    if (KTX_TRY(equals(meter, entries[it->second].key, key))) return &entries[it->second].value;
  }
  return nullptr;
}

void DictObject::append(Entry entry) {
  outside = outside || entry.key.outside() || entry.value.outside();
  depth = std::max({depth, entry.key.depth(), entry.value.depth()});
  entries.push_back(std::move(entry));
  if (entries.size() == kIndexFrom) {
    for (size_t i = 0; i < entries.size(); ++i) index.emplace(entries[i].hash, i);
  } else if (entries.size() > kIndexFrom) {
    index.emplace(entries.back().hash, entries.size() - 1);
  }
}

Status DictObject::set(Meter& meter, Value key, Value value) {
  KTX_TRY(meter.step(key.weight()));
  if (const Value* found = KTX_TRY(find(meter, key))) {
    depth = std::max(depth, value.depth());
    outside = outside || value.outside();
    *const_cast<Value*>(found) = std::move(value);
    return {};
  }
  const size_t hash = KTX_TRY(hash_key(key));
  append({std::move(key), std::move(value), hash});
  charge(meter, *this, sizeof(Entry) + 48);
  return {};
}

void DictObject::set(Meter& meter, std::string_view key, Value value) {
  if (const Value* found = find(key)) {
    depth = std::max(depth, value.depth());
    outside = outside || value.outside();
    *const_cast<Value*>(found) = std::move(value);
    return;
  }
  append({make_string(meter, std::string(key)), std::move(value), hash_text(key)});
  charge(meter, *this, sizeof(Entry) + 48);
}

int64_t RangeObject::size() const {
  if (step > 0 ? start >= stop : start <= stop) return 0;
  const uint64_t span = step > 0 ? static_cast<uint64_t>(stop) - static_cast<uint64_t>(start)
                                 : static_cast<uint64_t>(start) - static_cast<uint64_t>(stop);
  const uint64_t stride =
      step > 0 ? static_cast<uint64_t>(step) : uint64_t{0} - static_cast<uint64_t>(step);
  const uint64_t count = (span - 1) / stride;
  return count >= uint64_t{INT64_MAX} ? INT64_MAX : static_cast<int64_t>(count) + 1;
}

Value make_undefined(std::string story) {
  auto object = std::make_shared<StringObject>();
  object->text = std::move(story);
  return Value(Kind::Undefined, std::move(object));
}

Value make_string(Meter& meter, std::string text, bool markup, TextSpans outside) {
  auto object = std::make_shared<StringObject>();
  object->text = std::move(text);
  object->markup = markup;
  object->outside = !outside.empty();
  object->spans = std::move(outside);
  charge(meter, *object,
         static_cast<int64_t>(sizeof(StringObject) + object->text.capacity() +
                              object->spans.capacity() * sizeof(TextSpan)));
  meter.steps += static_cast<int64_t>(object->text.size() / 64);
  return Value(Kind::String, std::move(object));
}

Value make_part(Meter& meter, const StringObject& whole, size_t begin, size_t bytes) {
  TextSpans outside;
  add_spans(outside, 0, whole.spans, begin, begin + bytes);
  return make_string(meter, whole.text.substr(begin, bytes), whole.markup, std::move(outside));
}

void inherit_origin(const Value& made, const Value& from) {
  // Others hold what is not new: it says by itself where it is from.
  if (!from.outside() || made.outside() || !made.shared() || made.shared().use_count() > 1) return;
  if (made.is(Kind::List) || made.is(Kind::Tuple)) {
    for (const Value& item : made.list().items) {
      inherit_origin(item, from);
      made.shared()->outside = made.outside() || item.outside();
    }
  }
  if (!made.is_string() || made.text().empty()) return;
  auto& string = static_cast<StringObject&>(*made.shared());
  string.outside = true;
  const bool same = from.is_string() && from.text() == string.text;
  string.spans = same ? from.string().spans : TextSpans{{0, string.text.size()}};
}

Value make_wide_int(Meter& meter, std::string digits) {
  const double about = std::strtod(digits.c_str(), nullptr);
  return Value(about, make_string(meter, std::move(digits)).shared());
}

Value make_constant(std::string text) {
  auto object = std::make_shared<StringObject>();
  object->text = std::move(text);
  object->length();  // now, so that concurrent renderings only read
  return Value(Kind::String, std::move(object));
}

Value make_list(Meter& meter, std::vector<Value> items) {
  return Value(Kind::List, make_sequence<ListObject>(meter, std::move(items)));
}

Value make_tuple(Meter& meter, std::vector<Value> items) {
  return Value(Kind::Tuple, make_sequence<ListObject>(meter, std::move(items)));
}

Value make_view(Meter& meter, std::vector<Value> items, const char* python_name) {
  auto object = make_sequence<ListObject>(meter, std::move(items));
  object->python_name = python_name;
  return Value(Kind::DictView, std::move(object));
}

Value make_generator(Meter& meter, std::vector<Value> items) {
  return Value(Kind::Generator, make_sequence<GeneratorObject>(meter, std::move(items)));
}

Value make_bound(Meter& meter, const Builtin& builtin, Value self) {
  auto object = std::make_shared<CallableObject>();
  object->builtin = &builtin;
  object->depth = self.depth() + 1;
  object->self = std::move(self);
  charge(meter, *object, sizeof(CallableObject));
  if (object->depth > meter.limits.value_depth) meter.too_deep = true;
  return Value(Kind::Callable, std::move(object));
}

std::shared_ptr<DictObject> new_dict(Meter& meter) {
  auto object = std::make_shared<DictObject>();
  charge(meter, *object, sizeof(DictObject));
  return object;
}

Value make_dict(std::shared_ptr<DictObject> dict) {
  ++dict->depth;
  if (dict->meter != nullptr && dict->depth > dict->meter->limits.value_depth) {
    dict->meter->too_deep = true;
  }
  return Value(Kind::Dict, std::move(dict));
}

std::string_view type_name(const Value& value) {
  switch (value.kind()) {
    case Kind::Undefined:
      return "Undefined";
    case Kind::None:
      return "NoneType";
    case Kind::Bool:
      return "bool";
    case Kind::Int:
    case Kind::WideInt:
      return "int";
    case Kind::Float:
      return "float";
    case Kind::String:
      return value.string().markup ? "Markup" : "str";
    case Kind::List:
      return "list";
    case Kind::Tuple:
      return "tuple";
    case Kind::DictView:
      return value.list().python_name;
    case Kind::Dict:
      return "dict";
    case Kind::Range:
      return "range";
    case Kind::Generator:
      return "generator";
    case Kind::Namespace:
      return "Namespace";
    case Kind::Callable:
      return value.callable().macro != nullptr ? "Macro" : "function";
    case Kind::Loop:
      return "LoopContext";
  }
  return "object";
}

Error undefined_error(const Value& value) {
  const std::string* story = value.undefined_story();
  return Error{story != nullptr ? *story : "the value is undefined"};
}

}  // namespace ktx::text::jinja

// Filters on sequences. Results that Jinja2 computes lazily (map, select, …) are computed at
// once here and returned as a generator, which can be iterated once.
#include <fmt/format.h>

#include <algorithm>

#include "lib/support/strings.h"
#include "lib/text/chat_template/jinja_builtins.h"
#include "lib/text/chat_template/jinja_interpreter.h"
#include "lib/text/chat_template/jinja_operators.h"
#include "lib/text/chat_template/jinja_print.h"
#include "lib/text/chat_template/jinja_sort.h"
#include "lib/text/chat_template/unicode_text.h"

namespace ktx::text::jinja {
namespace {

// item.a.0.b for "a.0.b", item[3] for 3. `fallback` (may be null) stands in for
// what is undefined on the way.
Result<Value> get_path(Call& call, Value item, const Value& path, const Value* fallback) {
  std::vector<Value> keys;
  if (path.is_integral()) {
    keys.push_back(path);
  } else {
    const std::string text = KTX_TRY(to_str(call.meter, path));
    for (const std::string_view part : split(text, '.')) {
      const bool number = !part.empty() && part.size() < 18 &&
                          part.find_first_not_of("0123456789") == std::string_view::npos;
      keys.push_back(number ? Value::integer(std::atoll(std::string(part).c_str()))
                            : call.string(std::string(part)));
    }
  }
  for (const Value& key : keys) {
    item = KTX_TRY(call.in.item(item, key));
    if (fallback != nullptr && item.is_undefined()) item = *fallback;
  }
  return item;
}

// What a sort compares: one value, or a list of them for "a,b"; letters' case
// counts only when asked for.
Result<Value> sort_key(Call& call, const Value& item, const Value* path, bool case_sensitive) {
  const auto fold = [&](Value value) -> Value {
    if (case_sensitive || !value.is_string()) return value;
    return call.string(to_lower(value.text()));
  };
  if (path == nullptr || path->is_none()) return fold(item);
  if (!path->is_string() || path->text().find(',') == std::string::npos) {
    return fold(KTX_TRY(get_path(call, item, *path, nullptr)));
  }
  std::vector<Value> keys;
  for (const std::string_view part : split(path->text(), ',')) {
    const Value one = call.string(std::string(part));
    keys.push_back(fold(KTX_TRY(get_path(call, item, one, nullptr))));
  }
  return make_list(call.meter, std::move(keys));
}

struct Keyed {
  Value key;
  Value item;
};

Result<std::vector<Keyed>> sorted(Call& call, const std::vector<Value>& items, const Value* path,
                                  bool case_sensitive, bool reverse) {
  std::vector<Keyed> keyed;
  for (const Value& item : items) {
    Value key = KTX_TRY(sort_key(call, item, path, case_sensitive));
    // As in Jinja2 a named attribute is compared as a list of one, in which two that
    // are undefined are equal instead of an error.
    if (path != nullptr && path->is_string()) key = make_list(call.meter, {std::move(key)});
    keyed.push_back({std::move(key), item});
  }
  KTX_TRY(stable_sort(keyed, [&](const Keyed& a, const Keyed& b) -> Result<bool> {
    return reverse ? compare(call.meter, CompareOp::Less, b.key, a.key)
                   : compare(call.meter, CompareOp::Less, a.key, b.key);
  }));
  return keyed;
}

const Value* argument(const Call& call, size_t i) {
  return call.has(i) ? &call.args[i] : nullptr;
}

Result<Value> filter_length(Call& call) {
  return Value::integer(KTX_TRY(length_of(call.self)));
}

Result<Value> filter_first(Call& call) {
  if (call.self.is(Kind::Generator)) {
    GeneratorObject& generator = call.self.generator();
    if (generator.next < generator.items.size()) return generator.items[generator.next++];
  } else {
    const std::vector<Value> items = KTX_TRY(items_of(call.meter, call.self));
    if (!items.empty()) return items.front();
  }
  return make_undefined("no first item, the sequence was empty");
}

Result<Value> filter_last(Call& call) {
  if (call.self.is(Kind::Generator)) return Error{"'generator' object is not reversible"};
  const std::vector<Value> items = KTX_TRY(items_of(call.meter, call.self));
  if (!items.empty()) return items.back();
  return make_undefined("no last item, the sequence was empty");
}

Result<Value> filter_join(Call& call) {
  const Value separator = call.has(0) && call.args[0].is_string()
                              ? call.args[0]
                              : call.string(KTX_TRY(call.printed(0)));
  MeteredText out(call.meter);
  bool first = true;
  for (Value& item : KTX_TRY(items_of(call.meter, call.self))) {
    if (call.has(1) && !call.args[1].is_none()) {
      item = KTX_TRY(get_path(call, std::move(item), call.args[1], nullptr));
    }
    if (!first) KTX_TRY(out.append(separator));
    first = false;
    KTX_TRY(out.append(item));
  }
  return out.take_string();
}

Result<Value> filter_list(Call& call) {
  return make_list(call.meter, KTX_TRY(items_of(call.meter, call.self)));
}

Result<Value> filter_sort(Call& call) {
  const std::vector<Value> items = KTX_TRY(items_of(call.meter, call.self));
  std::vector<Value> out;
  for (Keyed& keyed : KTX_TRY(sorted(call, items, argument(call, 2), call.flag(1), call.flag(0)))) {
    out.push_back(std::move(keyed.item));
  }
  return make_list(call.meter, std::move(out));
}

Result<Value> filter_reverse(Call& call) {
  if (call.self.is_string()) {
    std::string out;
    for (std::string_view rest = call.self.text(); !rest.empty();) {
      const size_t bytes = last_code_point_bytes(rest);
      out += rest.substr(rest.size() - bytes);
      rest.remove_suffix(bytes);
    }
    return call.string(std::move(out));
  }
  std::vector<Value> items = KTX_TRY(items_of(call.meter, call.self));
  std::reverse(items.begin(), items.end());
  return make_generator(call.meter, std::move(items));
}

Result<Value> filter_unique(Call& call) {
  auto seen = new_dict(call.meter);
  std::vector<Value> out;
  for (const Value& item : KTX_TRY(items_of(call.meter, call.self))) {
    Value key = KTX_TRY(sort_key(call, item, argument(call, 1), call.flag(0)));
    if (KTX_TRY(seen->find(call.meter, key)) != nullptr) continue;
    KTX_TRY(seen->set(call.meter, std::move(key), Value::none()));
    out.push_back(item);
  }
  return make_generator(call.meter, std::move(out));
}

template <bool largest>
Result<Value> filter_extreme(Call& call) {
  const std::vector<Value> items = KTX_TRY(items_of(call.meter, call.self));
  if (items.empty()) return make_undefined("no aggregated item, the sequence was empty");
  Value best = items[0];
  Value best_key = KTX_TRY(sort_key(call, best, argument(call, 1), call.flag(0)));
  for (size_t i = 1; i < items.size(); ++i) {
    Value key = KTX_TRY(sort_key(call, items[i], argument(call, 1), call.flag(0)));
    const CompareOp op = largest ? CompareOp::Greater : CompareOp::Less;
    if (!KTX_TRY(compare(call.meter, op, key, best_key))) continue;
    best = items[i];
    best_key = std::move(key);
  }
  return best;
}

Result<Value> filter_sum(Call& call) {
  Value total = call.has(1) ? call.args[1] : Value::integer(0);
  if (total.is_string()) return Error{"sum() can't sum strings; use join"};
  for (Value& item : KTX_TRY(items_of(call.meter, call.self))) {
    if (call.has(0) && !call.args[0].is_none()) {
      item = KTX_TRY(get_path(call, std::move(item), call.args[0], nullptr));
    }
    total = KTX_TRY(apply_binary(call.meter, BinaryOp::Add, total, item));
  }
  return total;
}

// A filter or test named by a template's string, on one item with the call's
// arguments from `skip` on.
Result<Value> apply_named(Call& call, const Builtin* builtin, const Value& item, size_t skip) {
  Args args;
  args.positional.assign(call.args.begin() + static_cast<std::ptrdiff_t>(skip), call.args.end());
  args.named = call.named;
  return run_builtin(call.in, *builtin, item, std::move(args));
}

Result<Value> filter_map(Call& call) {
  if (!truthy(call.self)) return make_generator(call.meter, {});
  const Value* attribute = nullptr;
  const Value* fallback = nullptr;
  const Builtin* filter = nullptr;
  if (call.args.empty()) {
    for (const auto& [name, value] : call.named) {
      if (name == "attribute") {
        attribute = &value;
      } else if (name == "default") {
        fallback = value.is_none() ? nullptr : &value;
      } else {
        return Error{fmt::format("map: unexpected keyword argument '{}'", printable(name))};
      }
    }
    if (attribute == nullptr) return Error{"map requires a filter argument"};
  } else {
    const std::string_view name = KTX_TRY(call.text(0));
    filter = find_filter(name);
    if (filter == nullptr) {
      const std::vector<std::string> names = filter_names();
      return Error{
          fmt::format("no filter named '{}'{}", printable(name), did_you_mean(name, names))};
    }
  }
  std::vector<Value> out;
  for (const Value& item : KTX_TRY(items_of(call.meter, call.self))) {
    out.push_back(filter != nullptr ? KTX_TRY(apply_named(call, filter, item, 1))
                                    : KTX_TRY(get_path(call, item, *attribute, fallback)));
  }
  return make_generator(call.meter, std::move(out));
}

template <bool wanted, bool by_attribute>
Result<Value> filter_select(Call& call) {
  if (!truthy(call.self)) return make_generator(call.meter, {});
  constexpr size_t kTest = by_attribute ? 1 : 0;
  if (by_attribute && call.args.empty()) return Error{"missing parameter for attribute name"};
  const Builtin* test = nullptr;
  if (call.args.size() > kTest) {
    const std::string_view name = KTX_TRY(call.text(kTest));
    test = find_test(name);
    if (test == nullptr) {
      const std::vector<std::string> names = test_names();
      return Error{fmt::format("no test named '{}'{}", printable(name), did_you_mean(name, names))};
    }
  }
  std::vector<Value> out;
  for (const Value& item : KTX_TRY(items_of(call.meter, call.self))) {
    Value tested = item;
    if (by_attribute) tested = KTX_TRY(get_path(call, item, call.args[0], nullptr));
    if (test != nullptr) tested = KTX_TRY(apply_named(call, test, tested, kTest + 1));
    if (truthy(tested) == wanted) out.push_back(item);
  }
  return make_generator(call.meter, std::move(out));
}

Result<std::vector<Value>> pairs_of(Call& call, const Value& dict) {
  std::vector<Value> pairs;
  for (const DictObject::Entry& entry : dict.dict().entries) {
    pairs.push_back(make_tuple(call.meter, {entry.key, entry.value}));
    KTX_TRY(call.meter.step());
  }
  return pairs;
}

Result<Value> filter_items(Call& call) {
  if (call.self.is_undefined()) return make_generator(call.meter, {});
  if (!call.self.is(Kind::Dict)) return Error{"can only get item pairs from a mapping"};
  return make_generator(call.meter, KTX_TRY(pairs_of(call, call.self)));
}

Result<Value> filter_dictsort(Call& call) {
  if (call.self.is_undefined()) return undefined_error(call.self);
  if (!call.self.is(Kind::Dict)) return Error{"dictsort: expected a mapping"};
  const std::string_view by = KTX_TRY(call.text(1, "key"));
  if (by != "key" && by != "value") return Error{"you can only sort by either 'key' or 'value'"};
  const Value position = Value::integer(by == "key" ? 0 : 1);
  const std::vector<Value> pairs = KTX_TRY(pairs_of(call, call.self));
  std::vector<Value> out;
  for (Keyed& keyed : KTX_TRY(sorted(call, pairs, &position, call.flag(0), call.flag(2)))) {
    out.push_back(std::move(keyed.item));
  }
  return make_list(call.meter, std::move(out));
}

// Groups of equal `attribute`, as (grouper, list) tuples that also have these names.
Result<Value> filter_groupby(Call& call) {
  const std::vector<Value> items = KTX_TRY(items_of(call.meter, call.self));
  const Value* fallback = call.has(1) && !call.args[1].is_none() ? &call.args[1] : nullptr;
  const bool case_sensitive = call.flag(2);
  std::vector<Keyed> keyed;
  for (const Value& item : items) {
    Value key = KTX_TRY(get_path(call, item, call.args[0], fallback));
    if (!case_sensitive && key.is_string()) key = call.string(to_lower(key.text()));
    keyed.push_back({std::move(key), item});
  }
  KTX_TRY(stable_sort(keyed, [&](const Keyed& a, const Keyed& b) -> Result<bool> {
    return compare(call.meter, CompareOp::Less, a.key, b.key);
  }));
  std::vector<Value> groups;
  for (size_t begin = 0; begin < keyed.size();) {
    size_t end = begin;
    std::vector<Value> members;
    for (; end < keyed.size() && KTX_TRY(equals(call.meter, keyed[begin].key, keyed[end].key));
         ++end) {
      members.push_back(keyed[end].item);
    }
    if (end == begin) members.push_back(keyed[end++].item);  // NaN equals nothing
    // The group is named as its first member spells it.
    const Value name = KTX_TRY(get_path(call, keyed[begin].item, call.args[0], fallback));
    Value group = make_tuple(call.meter, {name, make_list(call.meter, std::move(members))});
    static_cast<ListObject&>(*group.shared()).is_group = true;
    groups.push_back(std::move(group));
    begin = end;
  }
  return make_list(call.meter, std::move(groups));
}

Result<Value> filter_batch(Call& call) {
  const int64_t size = KTX_TRY(call.integer(0));
  const bool fills = call.has(1) && !call.args[1].is_none();
  std::vector<Value> batches;
  std::vector<Value> batch;
  for (const Value& item : KTX_TRY(items_of(call.meter, call.self))) {
    if (static_cast<int64_t>(batch.size()) == size) {
      batches.push_back(make_list(call.meter, std::exchange(batch, {})));
    }
    batch.push_back(item);
  }
  if (!batch.empty()) {
    if (fills) KTX_TRY(call.meter.reserve(size > 0 ? size / 2 : 0));
    if (fills) KTX_TRY(call.meter.reserve(size * static_cast<int64_t>(sizeof(Value))));
    while (fills && static_cast<int64_t>(batch.size()) < size) batch.push_back(call.args[1]);
    batches.push_back(make_list(call.meter, std::move(batch)));
  }
  return make_generator(call.meter, std::move(batches));
}

Result<Value> filter_slice(Call& call) {
  const int64_t count = KTX_TRY(call.integer(0));
  const std::vector<Value> items = KTX_TRY(items_of(call.meter, call.self));
  if (count == 0) return Error{"integer division or modulo by zero"};
  KTX_TRY(call.meter.step(std::max<int64_t>(count, 0)));
  const bool fills = call.has(1) && !call.args[1].is_none();
  const auto length = static_cast<int64_t>(items.size());
  std::vector<Value> slices;
  size_t at = 0;
  for (int64_t i = 0; i < count; ++i) {
    const bool extra = i < length % count;
    std::vector<Value> slice;
    for (int64_t k = 0; k < length / count + (extra ? 1 : 0); ++k) slice.push_back(items[at++]);
    if (fills && !extra) slice.push_back(call.args[1]);
    slices.push_back(make_list(call.meter, std::move(slice)));
    KTX_TRY(call.meter.step());
  }
  return make_generator(call.meter, std::move(slices));
}

constexpr Builtin kSequenceFilters[] = {
    {"length", "", filter_length},
    {"count", "", filter_length},
    {"first", "", filter_first},
    {"last", "", filter_last},
    {"join", "d? attribute?", filter_join},
    {"list", "", filter_list},
    {"sort", "reverse? case_sensitive? attribute?", filter_sort},
    {"reverse", "", filter_reverse},
    {"unique", "case_sensitive? attribute?", filter_unique},
    {"min", "case_sensitive? attribute?", filter_extreme<false>},
    {"max", "case_sensitive? attribute?", filter_extreme<true>},
    {"sum", "attribute? start?", filter_sum},
    {"map", "*", filter_map},
    {"select", "*", filter_select<true, false>},
    {"reject", "*", filter_select<false, false>},
    {"selectattr", "*", filter_select<true, true>},
    {"rejectattr", "*", filter_select<false, true>},
    {"items", "", filter_items},
    {"dictsort", "case_sensitive? by? reverse?", filter_dictsort},
    {"groupby", "attribute default? case_sensitive?", filter_groupby},
    {"batch", "linecount fill_with?", filter_batch},
    {"slice", "slices fill_with?", filter_slice},
};

}  // namespace

std::span<const Builtin> sequence_filters() {
  return kSequenceFilters;
}

}  // namespace ktx::text::jinja

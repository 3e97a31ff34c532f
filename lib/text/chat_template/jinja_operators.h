// Python's operators on values: truth, comparison, arithmetic, indexing, iteration.
//
// Every function charges its work to the meter and fails with Python's message ("can only
// concatenate str (not \"int\") to str"). An undefined operand fails with the message of its
// origin, except in ==, `in` and truth. Comparison is in jinja_comparison.cc, items in
// jinja_items.cc.
#pragma once

#include <string_view>
#include <vector>

#include "lib/support/result.h"
#include "lib/text/chat_template/jinja_ast.h"
#include "lib/text/chat_template/jinja_value.h"

namespace ktx::text::jinja {

bool is_list_or_tuple(const Value& value);
bool truthy(const Value& value);
Result<bool> equals(Meter& meter, const Value& a, const Value& b);
Result<bool> compare(Meter& meter, CompareOp op, const Value& a, const Value& b);
Result<bool> contains(Meter& meter, const Value& container, const Value& item);

Result<Value> apply_binary(Meter& meter, BinaryOp op, const Value& a, const Value& b);
Result<Value> apply_unary(UnaryOp op, const Value& value);

// object[key], without the fallback to attributes: an undefined when there is no
// such item, an error when `object` is undefined itself.
Result<Value> item_of(Meter& meter, const Value& object, const Value& key);
// object[start:stop:step]; None or undefined bounds are open.
Result<Value> slice_of(Meter& meter, const Value& object, const Value& start, const Value& stop,
                       const Value& step);

Result<int64_t> length_of(const Value& value);
bool is_iterable(const Value& value);
// What a `for` walks over; uses up a generator.
Result<std::vector<Value>> items_of(Meter& meter, const Value& value);

// The undefined that stands for a missing attribute or item.
Value missing_attribute(const Value& object, std::string_view name);

}  // namespace ktx::text::jinja

// Filters, tests, methods and global functions: tables of named functions.
//
//   {"replace", "old new count?", filter_replace}
//
// The second column names the parameters after the value itself; `?` marks an
// optional one. A template may give them by position or by name; they arrive in
// the order of the table. "*" takes whatever is given. A row without a function
// is known but refused (methods that change a list or dict, as in HF's sandbox).
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lib/support/result.h"
#include "lib/text/chat_template/jinja_value.h"

namespace ktx::text::jinja {

// Evaluated arguments of a call.
struct Args {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

// One call of a builtin: its value, arguments in the order of its parameters.
struct Call {
  Interpreter& in;
  Meter& meter;
  const Builtin& builtin;
  const Value& self;                                 // what is filtered, tested, or has the method
  std::vector<Value> args;                           // by parameter; all positional ones for "*"
  std::vector<std::pair<std::string, Value>> named;  // for "*"
  uint64_t given = 0;                                // bit i: args[i] was given

  bool has(size_t i) const { return i < args.size() && ((given >> i) & 1) != 0; }
  // Typed arguments; the fallback where it was not given (or is None).
  Result<int64_t> integer(size_t i, int64_t fallback = 0) const;
  bool flag(size_t i, bool fallback = false) const;
  // A string, as it is (another type is an error) …
  Result<std::string_view> text(size_t i, std::string_view fallback = "") const;
  // … or whatever it is, printed.
  Result<std::string> printed(size_t i, std::string_view fallback = "") const;
  Value string(std::string text) const { return make_string(meter, std::move(text)); }
};

struct Builtin {
  std::string_view name;
  std::string_view parameters;
  Result<Value> (*run)(Call& call);
};

// Null when there is none of that name.
const Builtin* find_filter(std::string_view name);
const Builtin* find_test(std::string_view name);
const Builtin* find_method(Kind kind, std::string_view name);
std::vector<std::string> filter_names();
std::vector<std::string> test_names();

// The tables, each in the file of its functions.
std::span<const Builtin> text_filters();
std::span<const Builtin> sequence_filters();
std::span<const Builtin> value_filters();
std::span<const Builtin> all_tests();
std::span<const Builtin> string_methods();
std::span<const Builtin> list_methods();
std::span<const Builtin> tuple_methods();
std::span<const Builtin> dict_methods();
std::span<const Builtin> number_methods();
std::span<const Builtin> globals();
std::span<const Builtin> cycler_methods();

// Puts arguments in the order of the builtin's parameters and runs it.
Result<Value> run_builtin(Interpreter& in, const Builtin& builtin, const Value& self, Args args);

}  // namespace ktx::text::jinja

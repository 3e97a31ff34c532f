#include "lib/text/chat_template/jinja_builtins.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

#include "lib/support/strings.h"
#include "lib/text/chat_template/jinja_interpreter.h"
#include "lib/text/chat_template/jinja_operators.h"
#include "lib/text/chat_template/jinja_print.h"

namespace ktx::text::jinja {
namespace {

using Table = std::unordered_map<std::string_view, const Builtin*>;

Table make_table(std::initializer_list<std::span<const Builtin>> parts) {
  Table table;
  for (const std::span<const Builtin> part : parts) {
    for (const Builtin& builtin : part) table.emplace(builtin.name, &builtin);
  }
  return table;
}

const Builtin* find_in(const Table& table, std::string_view name) {
  const auto it = table.find(name);
  return it == table.end() ? nullptr : it->second;
}

const Table& filter_table() {
  static const Table table = make_table({text_filters(), sequence_filters(), value_filters()});
  return table;
}

const Table& test_table() {
  static const Table table = make_table({all_tests()});
  return table;
}

std::vector<std::string> names_of(const Table& table) {
  std::vector<std::string> names;
  for (const auto& [name, builtin] : table) names.emplace_back(name);
  std::sort(names.begin(), names.end());
  return names;
}

const Builtin* find_row(std::span<const Builtin> rows, std::string_view name) {
  for (const Builtin& row : rows) {
    if (row.name == name) return &row;
  }
  return nullptr;
}

Result<Value> run_loop_cycle(Call& call) {
  if (call.args.empty()) return Error{"no items for cycling given"};
  const auto index = static_cast<size_t>(std::max<int64_t>(call.self.loop().index0, 0));
  return call.args[index % call.args.size()];
}

Result<Value> run_loop_changed(Call& call) {
  LoopObject& loop = call.self.loop();
  Value now = make_tuple(call.meter, call.args);
  if (loop.changed && KTX_TRY(equals(call.meter, *loop.changed, now))) return Value::boolean(false);
  loop.changed = std::move(now);
  return Value::boolean(true);
}

constexpr Builtin kLoopMethods[] = {
    {"cycle", "*", run_loop_cycle},
    {"changed", "*", run_loop_changed},
};

}  // namespace

const Builtin* find_filter(std::string_view name) {
  return find_in(filter_table(), name);
}
const Builtin* find_test(std::string_view name) {
  return find_in(test_table(), name);
}
std::vector<std::string> filter_names() {
  return names_of(filter_table());
}
std::vector<std::string> test_names() {
  return names_of(test_table());
}

const Builtin* find_method(Kind kind, std::string_view name) {
  static const Table strings = make_table({string_methods()});
  switch (kind) {
    case Kind::String:
      return find_in(strings, name);
    case Kind::List:
      return find_row(list_methods(), name);
    case Kind::Tuple:
      return find_row(tuple_methods(), name);
    case Kind::Dict:
      return find_row(dict_methods(), name);
    case Kind::Int:
    case Kind::WideInt:
    case Kind::Float:
    case Kind::Bool:
      return find_row(number_methods(), name);
    case Kind::Loop:
      return find_row(kLoopMethods, name);
    default:
      return nullptr;
  }
}

Result<int64_t> Call::integer(size_t i, int64_t fallback) const {
  if (!has(i) || args[i].is_none()) return fallback;
  const Value& value = args[i];
  if (value.is_integral()) return value.as_int();
  if (value.is_undefined()) return undefined_error(value);
  return Error{fmt::format("{}: '{}' object cannot be interpreted as an integer", builtin.name,
                           type_name(value))};
}

bool Call::flag(size_t i, bool fallback) const {
  return has(i) ? truthy(args[i]) : fallback;
}

Result<std::string_view> Call::text(size_t i, std::string_view fallback) const {
  if (!has(i)) return fallback;
  const Value& value = args[i];
  if (value.is_string()) return std::string_view(value.text());
  if (value.is_undefined()) return undefined_error(value);
  return Error{fmt::format("{}: expected a str, got {}", builtin.name, type_name(value))};
}

Result<std::string> Call::printed(size_t i, std::string_view fallback) const {
  if (!has(i)) return std::string(fallback);
  return to_str(meter, args[i]);
}

namespace {

// Runs a function that knows nothing of where its text comes from: what it makes of text from
// outside is from outside.
Result<Value> run_marked(Call& call) {
  Value made = KTX_TRY(call.builtin.run(call));
  inherit_origin(made, call.self);
  for (const Value& arg : call.args) inherit_origin(made, arg);
  for (const auto& [name, arg] : call.named) inherit_origin(made, arg);
  return made;
}

}  // namespace

Result<Value> run_builtin(Interpreter& in, const Builtin& builtin, const Value& self, Args args) {
  if (builtin.run == nullptr) return Error{fmt::format("'{}' is not supported", builtin.name)};
  Meter& meter = in.meter();
  int64_t work = self.weight();
  for (const Value& arg : args.positional) work += arg.weight();
  for (const auto& [name, arg] : args.named) work += arg.weight();
  KTX_TRY(meter.step(work));
  Call call{in, meter, builtin, self, {}, {}};
  if (builtin.parameters == "*") {
    call.args = std::move(args.positional);
    call.named = std::move(args.named);
    call.given = ~uint64_t{0};
    return run_marked(call);
  }
  std::vector<std::string_view> parameters;
  if (!builtin.parameters.empty()) parameters = split(builtin.parameters, ' ');
  if (args.positional.size() > parameters.size()) {
    return Error{fmt::format("{} takes at most {} argument{}, {} given", builtin.name,
                             parameters.size(), parameters.size() == 1 ? "" : "s",
                             args.positional.size())};
  }
  call.args.resize(parameters.size());
  for (size_t i = 0; i < args.positional.size(); ++i) {
    call.args[i] = std::move(args.positional[i]);
    call.given |= uint64_t{1} << i;
  }
  for (auto& [name, value] : args.named) {
    size_t i = 0;
    while (i < parameters.size() && parameters[i].substr(0, parameters[i].find('?')) != name) ++i;
    if (i == parameters.size()) {
      return Error{
          fmt::format("{} got an unexpected keyword argument '{}'", builtin.name, printable(name))};
    }
    if (call.has(i)) {
      return Error{fmt::format("{} got multiple values for argument '{}'", builtin.name, name)};
    }
    call.args[i] = std::move(value);
    call.given |= uint64_t{1} << i;
  }
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (!call.has(i) && !parameters[i].ends_with('?')) {
      return Error{fmt::format("{} misses its argument '{}'", builtin.name, parameters[i])};
    }
  }
  return run_marked(call);
}

}  // namespace ktx::text::jinja

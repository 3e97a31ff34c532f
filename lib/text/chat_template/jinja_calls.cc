// Calls of macros and builtins, and loops, whose `loop` variable is an object with state.
#include <fmt/format.h>

#include <algorithm>

#include "lib/support/strings.h"
#include "lib/text/chat_template/jinja_frames.h"
#include "lib/text/chat_template/jinja_interpreter.h"
#include "lib/text/chat_template/jinja_operators.h"

namespace ktx::text::jinja {

// What a LoopObject needs while its loop runs.
struct Interpreter::RunningLoop {
  const ForStmt& stmt;
  Scope* outer;
};

Result<Value> Interpreter::call(const Value& callee, Args args) {
  if (callee.is_undefined()) return undefined_error(callee);
  if (callee.is(Kind::Loop)) return call_loop(callee, std::move(args));
  if (!callee.is(Kind::Callable)) {
    return Error{fmt::format("'{}' object is not callable", type_name(callee))};
  }
  CallableObject& callable = callee.callable();
  if (callable.macro != nullptr) return call_macro(callable, std::move(args));
  if (callable.builtin == nullptr) return Error{fmt::format("'{}' is not callable", callable.name)};
  // A joiner keeps its state in itself.
  const Value& self = callable.self.is_undefined() ? callee : callable.self;
  return run_builtin(*this, *callable.builtin, self, std::move(args));
}

Value Interpreter::make_macro(const MacroStmt& macro) {
  auto object = std::make_shared<CallableObject>();
  object->name = macro.name;
  object->macro = &macro;
  object->closure = scope_;
  for (Scope* scope = scope_; scope != nullptr && !scope->captured; scope = scope->parent) {
    scope->captured = true;
  }
  charge(meter_, *object, sizeof(CallableObject));
  return Value(Kind::Callable, std::move(object));
}

Result<Value> Interpreter::call_macro(const CallableObject& callable, Args args) {
  const MacroStmt& macro = *callable.macro;
  KTX_TRY(deeper(call_depth_, meter_.limits.call_depth, "calls"));
  ScopeGuard scope(*this, callable.closure);
  auto& variables = scope_->variables;
  const auto take_named = [&](std::string_view name) -> std::optional<Value> {
    const auto it = std::find_if(args.named.begin(), args.named.end(),
                                 [&](const auto& entry) { return entry.first == name; });
    if (it == args.named.end()) return std::nullopt;
    Value value = std::move(it->second);
    args.named.erase(it);
    return value;
  };
  bool names_caller = false;
  for (size_t i = 0; i < macro.parameters.size(); ++i) {
    const Parameter& parameter = macro.parameters[i];
    names_caller = names_caller || parameter.name == "caller";
    if (i < args.positional.size()) {
      variables[parameter.name] = std::move(args.positional[i]);
    } else if (auto value = take_named(parameter.name)) {
      variables[parameter.name] = std::move(*value);
    } else if (parameter.default_value) {
      variables[parameter.name] = KTX_TRY(eval(parameter.default_value));
    } else {
      variables[parameter.name] =
          make_undefined(fmt::format("parameter '{}' was not provided", printable(parameter.name)));
    }
  }
  if (macro.uses_caller && !names_caller) {
    auto caller = take_named("caller");
    variables["caller"] =
        caller && !caller->is_none() ? std::move(*caller) : make_undefined("No caller defined");
  }
  if (macro.uses_kwargs) {
    auto dict = new_dict(meter_);
    for (auto& [name, value] : args.named) dict->set(meter_, name, std::move(value));
    variables["kwargs"] = make_dict(std::move(dict));
  } else if (!args.named.empty()) {
    return Error{fmt::format("macro '{}' takes no keyword argument '{}'", macro.name,
                             printable(args.named[0].first))};
  }
  const size_t taken = std::min(args.positional.size(), macro.parameters.size());
  if (macro.uses_varargs) {
    variables["varargs"] = make_tuple(
        meter_, std::vector<Value>(args.positional.begin() + static_cast<std::ptrdiff_t>(taken),
                                   args.positional.end()));
  } else if (taken < args.positional.size()) {
    return Error{fmt::format("macro '{}' takes not more than {} argument(s)", macro.name,
                             macro.parameters.size())};
  }
  Capture capture(*this);
  KTX_TRY(exec(macro.body));
  --call_depth_;
  return capture.take();
}

Result<Value> Interpreter::macro_attribute(const Value& value, std::string_view name) {
  const CallableObject& callable = value.callable();
  if (callable.macro != nullptr) {
    const MacroStmt& macro = *callable.macro;
    if (name == "name") return make_string(meter_, macro.name);
    if (name == "catch_kwargs") return Value::boolean(macro.uses_kwargs);
    if (name == "catch_varargs") return Value::boolean(macro.uses_varargs);
    if (name == "caller") return Value::boolean(macro.uses_caller);
    if (name == "arguments") {
      std::vector<Value> names;
      for (const Parameter& p : macro.parameters) names.push_back(make_string(meter_, p.name));
      return make_tuple(meter_, std::move(names));
    }
  } else if (callable.name == "cycler" && !callable.items.empty()) {
    if (name == "current") return callable.items[callable.position];
    for (const Builtin& method : cycler_methods()) {
      if (method.name == name) return make_bound(meter_, method, value);
    }
  }
  return missing_attribute(value, name);
}

Result<Interpreter::Flow> Interpreter::run_loop(const ForStmt& s, const Value& iterable,
                                                Scope* outer, int depth) {
  auto loop = std::make_shared<LoopObject>();
  loop->items = KTX_TRY(items_of(meter_, iterable));
  charge(meter_, *loop,
         static_cast<int64_t>(sizeof(LoopObject) + loop->items.size() * sizeof(Value)));
  loop->filtered = s.condition != nullptr;
  loop->depth0 = depth;
  RunningLoop running{s, outer};
  loop->state = &running;
  // The loop variable may outlive the loop (ns.l = loop): it is left empty.
  struct Ender {
    LoopObject& loop;
    ~Ender() {
      loop.state = nullptr;
      loop.items.clear();
      loop.next = 0;
      loop.previous = loop.after = loop.changed = std::nullopt;
    }
  } ender{*loop};
  const Value loop_value(Kind::Loop, loop);
  bool completed = false;
  while (true) {
    std::optional<Value> item = std::move(loop->after);
    loop->after = std::nullopt;
    if (!item) item = KTX_TRY(next_item(*loop));
    if (!item) break;
    ++loop->index0;
    loop->previous = std::move(loop->current);
    loop->current = item;
    ScopeGuard scope(*this, outer);
    KTX_TRY(assign(s.target, std::move(*item)));
    scope_->variables["loop"] = loop_value;
    const Flow flow = KTX_TRY(exec(s.body));
    if (flow == Flow::Break) break;
    completed = completed || flow == Flow::Normal;
  }
  // As in Jinja2, a `break` or `continue` in every round counts as no round.
  if (!completed) {
    ScopeGuard scope(*this, outer);
    return exec(s.otherwise);
  }
  return Flow::Normal;
}

// The next item that the loop's `if` lets through.
Result<std::optional<Value>> Interpreter::next_item(LoopObject& loop) {
  if (loop.state == nullptr) return std::optional<Value>();
  const RunningLoop running = *static_cast<const RunningLoop*>(loop.state);
  while (loop.next < loop.items.size()) {
    Value item = loop.items[loop.next++];
    KTX_TRY(meter_.step());
    if (!loop.filtered) return std::optional<Value>(std::move(item));
    ScopeGuard scope(*this, running.outer);
    KTX_TRY(assign(running.stmt.target, item));
    if (truthy(KTX_TRY(eval(running.stmt.condition)))) return std::optional<Value>(std::move(item));
  }
  return std::optional<Value>();
}

Result<Value> Interpreter::look_ahead(LoopObject& loop) {
  if (!loop.after) loop.after = KTX_TRY(next_item(loop));
  return loop.after ? *loop.after : make_undefined("there is no next item");
}

Result<Value> Interpreter::loop_length(LoopObject& loop) {
  if (loop.length < 0 && loop.filtered) {
    std::vector<Value> rest;
    while (std::optional<Value> item = KTX_TRY(next_item(loop))) rest.push_back(std::move(*item));
    loop.length = loop.index0 + 1 + (loop.after ? 1 : 0) + static_cast<int64_t>(rest.size());
    loop.items = std::move(rest);
    loop.next = 0;
    loop.filtered = false;
  }
  if (loop.length < 0) loop.length = static_cast<int64_t>(loop.items.size());
  return Value::integer(loop.length);
}

Result<Value> Interpreter::loop_attribute(const Value& value, std::string_view name) {
  LoopObject& loop = value.loop();
  if (name == "index0") return Value::integer(loop.index0);
  if (name == "index") return Value::integer(loop.index0 + 1);
  if (name == "first") return Value::boolean(loop.index0 == 0);
  if (name == "last") {
    KTX_TRY(look_ahead(loop));
    return Value::boolean(!loop.after.has_value());
  }
  if (name == "length") return loop_length(loop);
  if (name == "revindex") return Value::integer(KTX_TRY(loop_length(loop)).as_int() - loop.index0);
  if (name == "revindex0") {
    return Value::integer(KTX_TRY(loop_length(loop)).as_int() - loop.index0 - 1);
  }
  if (name == "previtem") {
    return loop.previous ? *loop.previous : make_undefined("there is no previous item");
  }
  if (name == "nextitem") return look_ahead(loop);
  if (name == "depth") return Value::integer(loop.depth0 + 1);
  if (name == "depth0") return Value::integer(loop.depth0);
  if (const Builtin* method = find_method(Kind::Loop, name)) {
    return make_bound(meter_, *method, value);
  }
  return missing_attribute(value, name);
}

Result<Value> Interpreter::call_loop(const Value& value, Args args) {
  LoopObject& loop = value.loop();
  if (loop.state == nullptr) return Error{"the loop has ended"};
  const RunningLoop running = *static_cast<const RunningLoop*>(loop.state);
  if (!running.stmt.recursive) {
    return Error{"the loop must have the 'recursive' marker to be called recursively"};
  }
  if (args.positional.size() != 1 || !args.named.empty()) {
    return Error{"loop() takes one argument: what to loop over"};
  }
  KTX_TRY(deeper(call_depth_, meter_.limits.call_depth, "calls"));
  Capture capture(*this);
  KTX_TRY(run_loop(running.stmt, args.positional[0], running.outer, loop.depth0 + 1));
  --call_depth_;
  return capture.take();
}

}  // namespace ktx::text::jinja

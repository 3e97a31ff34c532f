// Statements, scopes and output. Expressions: jinja_eval.cc; calls and loops: jinja_calls.cc.
#include "lib/text/chat_template/jinja_interpreter.h"

#include <fmt/format.h>

#include "lib/support/strings.h"
#include "lib/text/chat_template/jinja_frames.h"
#include "lib/text/chat_template/jinja_lexer.h"
#include "lib/text/chat_template/jinja_operators.h"
#include "lib/text/chat_template/jinja_print.h"

namespace ktx::text::jinja {

Interpreter::Interpreter(const Body& body, const RenderLimits& limits, const std::tm& now)
    : meter_{limits}, body_(body), now_(now) {
  for (const Builtin& builtin : globals()) {
    auto object = std::make_shared<CallableObject>();
    object->name = std::string(builtin.name);
    object->builtin = &builtin;
    globals_[builtin.name] = Value(Kind::Callable, std::move(object));
  }
}

Interpreter::~Interpreter() {
  // Only a namespace can hold itself; without its attributes nothing is cyclic.
  for (const auto& ns : namespaces_) ns->attributes->entries.clear();
}

Result<MarkedText> Interpreter::run() {
  MarkedText out;
  out_ = &out;
  const Result<Flow> flow = exec(body_);
  out_ = nullptr;
  if (!flow.ok()) return error_at(error_loc_, flow.error().message);
  return out;
}

void Interpreter::locate(Loc loc) {
  if (located_) return;
  located_ = true;
  error_loc_ = loc;
}

Status Interpreter::deeper(int& depth, int limit, std::string_view what) {
  if (depth >= limit) return Error{fmt::format("{} nest more than {} deep", what, limit)};
  ++depth;
  return {};
}

Status Interpreter::emit(std::string_view text) {
  out_->text.append(text);
  meter_.live_bytes += static_cast<int64_t>(text.size());
  if (static_cast<int64_t>(out_->text.size()) > meter_.limits.output_bytes) {
    return Error{fmt::format("the template prints more than {} bytes", meter_.limits.output_bytes)};
  }
  return meter_.step(static_cast<int64_t>(text.size() / 64));
}

Status Interpreter::emit(const Value& value) {
  const size_t at = out_->text.size();
  if (value.is_string()) {
    add_spans(out_->outside, at, value.string().spans, 0, value.text().size());
    return emit(value.text());
  }
  const std::string text = KTX_TRY(to_str(meter_, value));
  if (value.outside()) add_span(out_->outside, at, at + text.size());
  return emit(text);
}

Result<Interpreter::Flow> Interpreter::exec(const Body& body) {
  for (const Stmt& stmt : body) {
    const Flow flow = KTX_TRY(exec(stmt));
    if (flow != Flow::Normal) return flow;
  }
  return Flow::Normal;
}

Result<Interpreter::Flow> Interpreter::exec(const Stmt& stmt) {
  Status entered = meter_.step();
  if (entered.ok()) entered = deeper(eval_depth_, meter_.limits.eval_depth, "statements");
  if (!entered.ok()) {
    locate(stmt.loc);
    return entered.error();
  }
  Result<Flow> flow = std::visit([&](const auto& node) { return exec_node(node); }, stmt.node);
  --eval_depth_;
  if (!flow.ok()) locate(stmt.loc);
  return flow;
}

Result<Interpreter::Flow> Interpreter::exec_node(const TextStmt& s) {
  KTX_TRY(emit(std::string_view(s.text)));
  return Flow::Normal;
}

Result<Interpreter::Flow> Interpreter::exec_node(const OutputStmt& s) {
  KTX_TRY(emit(KTX_TRY(eval(s.value))));
  return Flow::Normal;
}

Result<Interpreter::Flow> Interpreter::exec_node(const IfStmt& s) {
  for (const IfStmt::Branch& branch : s.branches) {
    if (!branch.condition || truthy(KTX_TRY(eval(branch.condition)))) return exec(branch.body);
  }
  return Flow::Normal;
}

Result<Interpreter::Flow> Interpreter::exec_node(const ForStmt& s) {
  const Value iterable = KTX_TRY(eval(s.iterable));
  return run_loop(s, iterable, scope_, 0);
}

Result<Interpreter::Flow> Interpreter::exec_node(const SetStmt& s) {
  KTX_TRY(assign(s.target, KTX_TRY(eval(s.value))));
  return Flow::Normal;
}

Result<Value> Interpreter::render_body(const Body& body) {
  ScopeGuard scope(*this, scope_);
  Capture capture(*this);
  KTX_TRY(exec(body));
  return capture.take();
}

Result<Interpreter::Flow> Interpreter::exec_node(const SetBlockStmt& s) {
  Value text = KTX_TRY(render_body(s.body));
  if (s.filter) {
    block_text_ = std::move(text);
    text = KTX_TRY(eval(s.filter));
  }
  KTX_TRY(assign(s.target, std::move(text)));
  return Flow::Normal;
}

Result<Interpreter::Flow> Interpreter::exec_node(const FilterBlockStmt& s) {
  block_text_ = KTX_TRY(render_body(s.body));
  const Value text = KTX_TRY(eval(s.filter));
  KTX_TRY(emit(text));
  return Flow::Normal;
}

Result<Interpreter::Flow> Interpreter::exec_node(const std::unique_ptr<MacroStmt>& s) {
  scope_->variables[s->name] = make_macro(*s);
  return Flow::Normal;
}

Result<Interpreter::Flow> Interpreter::exec_node(const CallBlockStmt& s) {
  const auto& call_expr = std::get<CallExpr>(s.call->node);
  const Value callee = KTX_TRY(eval(call_expr.callee));
  Args args = KTX_TRY(eval_args(call_expr.args));
  args.named.emplace_back("caller", make_macro(*s.caller));
  const Value text = KTX_TRY(call(callee, std::move(args)));
  KTX_TRY(emit(text));
  return Flow::Normal;
}

Result<Interpreter::Flow> Interpreter::exec_node(const WithStmt& s) {
  // All values are computed outside the new scope.
  std::vector<Value> values;
  for (const auto& [target, value] : s.variables) values.push_back(KTX_TRY(eval(value)));
  ScopeGuard scope(*this, scope_);
  for (size_t i = 0; i < values.size(); ++i) {
    KTX_TRY(assign(s.variables[i].first, std::move(values[i])));
  }
  return exec(s.body);
}

Result<Interpreter::Flow> Interpreter::exec_node(const ScopeStmt& s) {
  ScopeGuard scope(*this, scope_);
  return exec(s.body);
}

Status Interpreter::assign(const Target& target, Value value) {
  if (target.is_tuple) {
    const std::vector<Value> items = KTX_TRY(items_of(meter_, value));
    if (items.size() != target.items.size()) {
      return Error{fmt::format("{} values to unpack (expected {}, got {})",
                               items.size() < target.items.size() ? "not enough" : "too many",
                               target.items.size(), items.size())};
    }
    for (size_t i = 0; i < items.size(); ++i) KTX_TRY(assign(target.items[i], items[i]));
    return {};
  }
  if (target.attribute.empty()) {
    scope_->variables[target.name] = std::move(value);
    return {};
  }
  const Value ns = KTX_TRY(lookup(target.name));
  if (!ns.is(Kind::Namespace)) return Error{"cannot assign attribute on non-namespace object"};
  ns.ns().attributes->set(meter_, target.attribute, std::move(value));
  return {};
}

Value Interpreter::new_namespace(std::shared_ptr<DictObject> attributes) {
  auto object = std::make_shared<NamespaceObject>();
  object->attributes = std::move(attributes);
  charge(meter_, *object, 256);  // kept to the end
  namespaces_.push_back(object);
  return Value(Kind::Namespace, std::move(object));
}

}  // namespace ktx::text::jinja

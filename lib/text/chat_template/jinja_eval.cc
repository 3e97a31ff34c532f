// Evaluates expressions: one eval_node per kind of node.
#include <fmt/format.h>

#include "lib/support/strings.h"
#include "lib/text/chat_template/jinja_interpreter.h"
#include "lib/text/chat_template/jinja_operators.h"
#include "lib/text/chat_template/jinja_print.h"

namespace ktx::text::jinja {

Result<Value> Interpreter::eval(const Expr& expr) {
  Status entered = meter_.step();
  if (entered.ok()) entered = deeper(eval_depth_, meter_.limits.eval_depth, "expressions");
  if (!entered.ok()) {
    locate(expr.loc);
    return entered.error();
  }
  Result<Value> value = std::visit([&](const auto& node) { return eval_node(node); }, expr.node);
  --eval_depth_;
  if (!value.ok()) locate(expr.loc);
  return value;
}

Result<Value> Interpreter::eval_node(const ConstExpr& e) {
  return e.value;
}

Result<Value> Interpreter::eval_node(const NameExpr& e) {
  return lookup(e.name);
}

Result<Value> Interpreter::lookup(std::string_view name) {
  for (const Scope* scope = scope_; scope != nullptr; scope = scope->parent) {
    const auto it = scope->variables.find(name);
    if (it != scope->variables.end()) return it->second;
  }
  if (const auto it = inputs_.find(name); it != inputs_.end()) return it->second;
  if (const auto it = globals_.find(name); it != globals_.end()) return it->second;
  return make_undefined(fmt::format("'{}' is undefined", printable(name)));
}

Result<std::vector<Value>> Interpreter::eval_all(const std::vector<ExprPtr>& list) {
  std::vector<Value> values;
  values.reserve(list.size());
  for (const ExprPtr& e : list) values.push_back(KTX_TRY(eval(e)));
  return values;
}

Result<Value> Interpreter::eval_node(const ListExpr& e) {
  return make_list(meter_, KTX_TRY(eval_all(e.items)));
}

Result<Value> Interpreter::eval_node(const TupleExpr& e) {
  return make_tuple(meter_, KTX_TRY(eval_all(e.items)));
}

Result<Value> Interpreter::eval_node(const DictExpr& e) {
  auto dict = new_dict(meter_);
  for (const auto& [key_expr, value_expr] : e.entries) {
    Value key = KTX_TRY(eval(key_expr));
    Value value = KTX_TRY(eval(value_expr));
    KTX_TRY(dict->set(meter_, std::move(key), std::move(value)));
  }
  return make_dict(std::move(dict));
}

Result<Value> Interpreter::eval_node(const UnaryExpr& e) {
  return apply_unary(e.op, KTX_TRY(eval(e.operand)));
}

Result<Value> Interpreter::eval_node(const BinaryExpr& e) {
  Value left = KTX_TRY(eval(e.left));
  if (e.op == BinaryOp::And) return truthy(left) ? eval(e.right) : Result<Value>(std::move(left));
  if (e.op == BinaryOp::Or) return truthy(left) ? Result<Value>(std::move(left)) : eval(e.right);
  const Value right = KTX_TRY(eval(e.right));
  return apply_binary(meter_, e.op, left, right);
}

Result<Value> Interpreter::eval_node(const ConcatExpr& e) {
  MeteredText text(meter_);
  for (const ExprPtr& part : e.parts) {
    KTX_TRY(text.append(KTX_TRY(eval(part))));
  }
  return text.take_string();
}

Result<Value> Interpreter::eval_node(const CompareExpr& e) {
  Value left = KTX_TRY(eval(e.first));
  for (const auto& [op, operand] : e.rest) {
    Value right = KTX_TRY(eval(operand));
    if (!KTX_TRY(compare(meter_, op, left, right))) return Value::boolean(false);
    left = std::move(right);
  }
  return Value::boolean(true);
}

Result<Value> Interpreter::eval_node(const ConditionalExpr& e) {
  if (truthy(KTX_TRY(eval(e.condition)))) return eval(e.then);
  if (e.otherwise) return eval(e.otherwise);
  return make_undefined("the inline if-expression evaluated to false and has no else");
}

Result<Value> Interpreter::eval_node(const GetAttrExpr& e) {
  return attribute(KTX_TRY(eval(e.object)), e.name);
}

Result<Value> Interpreter::eval_node(const GetItemExpr& e) {
  const Value object = KTX_TRY(eval(e.object));
  return item(object, KTX_TRY(eval(e.index)));
}

Result<Value> Interpreter::eval_node(const SliceExpr& e) {
  const Value object = KTX_TRY(eval(e.object));
  const Value start = e.start ? KTX_TRY(eval(e.start)) : Value::none();
  const Value stop = e.stop ? KTX_TRY(eval(e.stop)) : Value::none();
  const Value step = e.step ? KTX_TRY(eval(e.step)) : Value::none();
  return slice_of(meter_, object, start, stop, step);
}

Result<Args> Interpreter::eval_args(const CallArgs& args) {
  Args out;
  out.positional = KTX_TRY(eval_all(args.positional));
  for (const auto& [name, e] : args.named) out.named.emplace_back(name, KTX_TRY(eval(e)));
  if (args.star) {
    for (Value& v : KTX_TRY(items_of(meter_, KTX_TRY(eval(args.star))))) {
      out.positional.push_back(std::move(v));
    }
  }
  if (args.double_star) {
    const Value more = KTX_TRY(eval(args.double_star));
    if (!more.is(Kind::Dict)) {
      return Error{fmt::format("argument after ** must be a mapping, not {}", type_name(more))};
    }
    for (const DictObject::Entry& entry : more.dict().entries) {
      if (!entry.key.is_string()) return Error{"keywords must be strings"};
      for (const auto& [name, e] : args.named) {
        if (name == entry.key.text()) {
          return Error{
              fmt::format("got multiple values for keyword argument '{}'", printable(name))};
        }
      }
      out.named.emplace_back(entry.key.text(), entry.value);
    }
  }
  return out;
}

Result<Value> Interpreter::eval_node(const CallExpr& e) {
  const Value callee = KTX_TRY(eval(e.callee));
  return call(callee, KTX_TRY(eval_args(e.args)));
}

Result<Value> Interpreter::eval_node(const FilterExpr& e) {
  const Value input = e.input ? KTX_TRY(eval(e.input)) : block_text_;
  Args args = KTX_TRY(eval_args(e.args));
  if (e.filter == nullptr) {
    const std::vector<std::string> names = filter_names();
    return Error{
        fmt::format("no filter named '{}'{}", printable(e.name), did_you_mean(e.name, names))};
  }
  return run_builtin(*this, *e.filter, input, std::move(args));
}

Result<Value> Interpreter::eval_node(const TestExpr& e) {
  const Value input = KTX_TRY(eval(e.input));
  Args args = KTX_TRY(eval_args(e.args));
  if (e.test == nullptr) {
    const std::vector<std::string> names = test_names();
    return Error{
        fmt::format("no test named '{}'{}", printable(e.name), did_you_mean(e.name, names))};
  }
  return run_builtin(*this, *e.test, input, std::move(args));
}

Result<Value> Interpreter::attribute(const Value& object, std::string_view name) {
  switch (object.kind()) {
    case Kind::Undefined:
      return undefined_error(object);
    case Kind::Loop:
      return loop_attribute(object, name);
    case Kind::Namespace:
      if (const Value* found = object.ns().attributes->find(name)) return *found;
      return missing_attribute(object, name);
    case Kind::Callable:
      return macro_attribute(object, name);
    default:
      break;
  }
  if (const Builtin* method = find_method(object.kind(), name)) {
    if (method->run != nullptr) return make_bound(meter_, *method, object);
    return make_undefined(
        fmt::format("access to attribute '{}' of '{}' object is unsafe", name, type_name(object)));
  }
  if (object.is(Kind::Dict)) {
    if (const Value* found = object.dict().find(name)) return *found;
  }
  if (object.is(Kind::Tuple) && object.list().is_group) {
    if (name == "grouper") return object.list().items[0];
    if (name == "list") return object.list().items[1];
  }
  return missing_attribute(object, name);
}

Result<Value> Interpreter::item(const Value& object, const Value& key) {
  Value found = KTX_TRY(item_of(meter_, object, key));
  if (!found.is_undefined() || !key.is_string()) return found;
  // A dict may hold an undefined; then the attribute is looked up, as in Jinja2.
  if (object.is(Kind::Dict) && object.dict().find(key.text()) != nullptr) return found;
  return attribute(object, key.text());
}

}  // namespace ktx::text::jinja

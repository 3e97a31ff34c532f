#include "lib/text/chat_template/template_literals.h"

#include <utility>

namespace ktx::text::jinja {
namespace {

class Collector {
 public:
  Collector(TemplateNames& names, std::vector<TemplateLiteral>& literals)
      : names_(names), literals_(literals) {}

  void body(const Body& body) {
    for (const Stmt& stmt : body) std::visit(*this, stmt.node);
  }

  // Statements.
  void operator()(const TextStmt& stmt) { literals_.push_back({stmt.text, true}); }
  void operator()(const OutputStmt& stmt) { expr(stmt.value); }
  void operator()(const IfStmt& stmt) {
    for (const IfStmt::Branch& branch : stmt.branches) {
      unprinted(branch.condition);
      body(branch.body);
    }
  }
  void operator()(const ForStmt& stmt) {
    target(stmt.target);
    expr(stmt.iterable);
    unprinted(stmt.condition);
    body(stmt.body);
    body(stmt.otherwise);
  }
  void operator()(const SetStmt& stmt) {
    target(stmt.target);
    expr(stmt.value);
  }
  void operator()(const SetBlockStmt& stmt) {
    target(stmt.target);
    expr(stmt.filter);
    body(stmt.body);
  }
  void operator()(const std::unique_ptr<MacroStmt>& stmt) {
    if (!stmt) return;
    names_.set.insert(stmt->name);
    for (const Parameter& parameter : stmt->parameters) {
      names_.set.insert(parameter.name);
      expr(parameter.default_value);
    }
    body(stmt->body);
  }
  void operator()(const CallBlockStmt& stmt) {
    (*this)(stmt.caller);
    expr(stmt.call);
  }
  void operator()(const FilterBlockStmt& stmt) {
    expr(stmt.filter);
    body(stmt.body);
  }
  void operator()(const WithStmt& stmt) {
    for (const auto& [name, value] : stmt.variables) {
      target(name);
      expr(value);
    }
    body(stmt.body);
  }
  void operator()(const ScopeStmt& stmt) { body(stmt.body); }
  void operator()(const BreakStmt&) {}
  void operator()(const ContinueStmt&) {}

  // Expressions.
  void operator()(const ConstExpr& node) {
    if (node.value.is_string()) literals_.push_back({node.value.text(), printed_});
  }
  void operator()(const NameExpr& node) { names_.variables.insert(node.name); }
  void operator()(const ListExpr& node) { all(node.items); }
  void operator()(const TupleExpr& node) { all(node.items); }
  void operator()(const DictExpr& node) {
    for (const auto& [key, value] : node.entries) {
      expr(key);
      expr(value);
    }
  }
  void operator()(const UnaryExpr& node) { expr(node.operand); }
  void operator()(const BinaryExpr& node) {
    expr(node.left);
    expr(node.right);
  }
  void operator()(const ConcatExpr& node) { all(node.parts); }
  void operator()(const CompareExpr& node) {
    unprinted(node.first);
    for (const auto& [op, value] : node.rest) unprinted(value);
  }
  void operator()(const ConditionalExpr& node) {
    unprinted(node.condition);
    expr(node.then);
    expr(node.otherwise);
  }
  void operator()(const GetAttrExpr& node) {
    names_.fields.insert(node.name);
    expr(node.object);
  }
  void operator()(const GetItemExpr& node) {
    if (const auto* index = std::get_if<ConstExpr>(&node.index->node);
        index && index->value.is_string()) {
      names_.fields.insert(index->value.text());
    }
    expr(node.object);
    unprinted(node.index);
  }
  void operator()(const SliceExpr& node) {
    for (const ExprPtr* part : {&node.object, &node.start, &node.stop, &node.step}) expr(*part);
  }
  void operator()(const CallExpr& node) {
    const auto* function = std::get_if<NameExpr>(&node.callee->node);
    if (function) {
      names_.calls.insert(function->name);
    } else if (const auto* method = std::get_if<GetAttrExpr>(&node.callee->node)) {
      expr(method->object);  // its name is no field
    } else {
      expr(node.callee);
    }
    const bool refuses = function && function->name == "raise_exception";
    const bool before = std::exchange(printed_, printed_ && !refuses);
    args(node.args);
    printed_ = before;
  }
  void operator()(const FilterExpr& node) {
    expr(node.input);
    args(node.args);
  }
  void operator()(const TestExpr& node) {
    unprinted(node.input);
    const bool before = std::exchange(printed_, false);
    args(node.args);
    printed_ = before;
  }

 private:
  void expr(const ExprPtr& expr) {
    if (expr) std::visit(*this, expr->node);
  }
  void unprinted(const ExprPtr& value) {
    const bool before = std::exchange(printed_, false);
    expr(value);
    printed_ = before;
  }
  void all(const std::vector<ExprPtr>& list) {
    for (const ExprPtr& item : list) expr(item);
  }
  void args(const CallArgs& args) {
    all(args.positional);
    for (const auto& [name, value] : args.named) expr(value);
    expr(args.star);
    expr(args.double_star);
  }
  void target(const Target& target) {
    if (target.attribute.empty()) names_.set.insert(target.name);
    for (const Target& item : target.items) this->target(item);
  }

  TemplateNames& names_;
  std::vector<TemplateLiteral>& literals_;
  bool printed_ = true;
};

}  // namespace

void collect(const Body& body, TemplateNames& names, std::vector<TemplateLiteral>& literals) {
  Collector(names, literals).body(body);
}

}  // namespace ktx::text::jinja

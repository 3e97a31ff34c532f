// The syntax tree of a chat template.
//
//   {% for m in messages if m.role == 'user' %}{{ m.content | trim }}{% endfor %}
//
//   ForStmt target=m iterable=Name(messages) condition=Compare(…)
//     OutputStmt Filter(trim, GetAttr(Name(m), content))
//
// Plain data, built by the parser and only read afterwards (by many renderings at once). Its
// depth is bounded by kMaxTemplateDepth, so recursion over it is safe.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "lib/text/chat_template/jinja_value.h"

namespace ktx::text::jinja {

struct Loc {
  int line = 1;
  int column = 1;  // in code points
};

struct Expr;
struct Stmt;
using ExprPtr = std::unique_ptr<Expr>;
using Body = std::vector<Stmt>;

enum class UnaryOp { Not, Negate, Plus };
enum class BinaryOp { Add, Subtract, Multiply, Divide, FloorDivide, Modulo, Power, And, Or };
enum class CompareOp { Equal, NotEqual, Less, LessEqual, Greater, GreaterEqual, In, NotIn };

// f(1, *rest, name=2, **more)
struct CallArgs {
  std::vector<ExprPtr> positional;
  std::vector<std::pair<std::string, ExprPtr>> named;
  ExprPtr star;         // may be null
  ExprPtr double_star;  // may be null
};

struct ConstExpr {
  Value value;
};
struct NameExpr {
  std::string name;
};
struct ListExpr {
  std::vector<ExprPtr> items;
};
struct TupleExpr {
  std::vector<ExprPtr> items;
};
struct DictExpr {
  std::vector<std::pair<ExprPtr, ExprPtr>> entries;
};
struct UnaryExpr {
  UnaryOp op;
  ExprPtr operand;
};
struct BinaryExpr {
  BinaryOp op;
  ExprPtr left, right;
};
struct ConcatExpr {  // a ~ b ~ c
  std::vector<ExprPtr> parts;
};
struct CompareExpr {  // a < b <= c
  ExprPtr first;
  std::vector<std::pair<CompareOp, ExprPtr>> rest;
};
struct ConditionalExpr {               // then if condition else otherwise
  ExprPtr condition, then, otherwise;  // otherwise may be null
};
struct GetAttrExpr {
  ExprPtr object;
  std::string name;
};
struct GetItemExpr {
  ExprPtr object, index;
};
struct SliceExpr {
  ExprPtr object, start, stop, step;  // the last three may be null
};
struct CallExpr {
  ExprPtr callee;
  CallArgs args;
};
struct FilterExpr {
  ExprPtr input;  // null: the text of a filter or set block
  std::string name;
  const Builtin* filter;  // null: unknown, an error when reached
  CallArgs args;
};
struct TestExpr {
  ExprPtr input;
  std::string name;
  const Builtin* test;  // null: unknown, an error when reached
  CallArgs args;
};

struct Expr {
  Loc loc;
  int depth;  // nodes below it
  std::variant<ConstExpr, NameExpr, ListExpr, TupleExpr, DictExpr, UnaryExpr, BinaryExpr,
               ConcatExpr, CompareExpr, ConditionalExpr, GetAttrExpr, GetItemExpr, SliceExpr,
               CallExpr, FilterExpr, TestExpr>
      node;
};

// What `set` and `for` assign to: a name, ns.attribute, or a tuple of targets.
struct Target {
  Loc loc;
  std::string name;
  std::string attribute;      // of a namespace; empty otherwise
  std::vector<Target> items;  // not empty (or is_tuple): a tuple
  bool is_tuple = false;
};

struct Parameter {
  std::string name;
  ExprPtr default_value;  // may be null
};

struct TextStmt {
  std::string text;
};
struct OutputStmt {
  ExprPtr value;
};
struct IfStmt {
  struct Branch {
    ExprPtr condition;  // null: else
    Body body;
  };
  std::vector<Branch> branches;
};
struct ForStmt {
  Target target;
  ExprPtr iterable;
  ExprPtr condition;  // may be null
  bool recursive = false;
  Body body, otherwise;
};
struct SetStmt {
  Target target;
  ExprPtr value;
};
struct SetBlockStmt {
  Target target;
  ExprPtr filter;  // may be null; its innermost input is null
  Body body;
};
struct MacroStmt {
  std::string name;
  std::vector<Parameter> parameters;
  Body body;
  bool uses_caller = false, uses_varargs = false, uses_kwargs = false;
  bool is_caller = false;  // the body of a call block
};
struct CallBlockStmt {
  std::unique_ptr<MacroStmt> caller;  // the block's body
  ExprPtr call;                       // a CallExpr
};
struct FilterBlockStmt {
  ExprPtr filter;
  Body body;
};
struct WithStmt {
  std::vector<std::pair<Target, ExprPtr>> variables;
  Body body;
};
struct ScopeStmt {  // block, generation, autoescape: a scope of its own
  Body body;
};
struct BreakStmt {};
struct ContinueStmt {};

struct Stmt {
  Loc loc;
  std::variant<TextStmt, OutputStmt, IfStmt, ForStmt, SetStmt, SetBlockStmt,
               std::unique_ptr<MacroStmt>, CallBlockStmt, FilterBlockStmt, WithStmt, ScopeStmt,
               BreakStmt, ContinueStmt>
      node;
};

}  // namespace ktx::text::jinja

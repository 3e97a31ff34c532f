// Renders a parsed chat template.
//
//   Interpreter interpreter(body, limits, now);
//   interpreter.set("messages", KTX_TRY(from_json(interpreter.meter(), json)));
//   std::string prompt = KTX_TRY(interpreter.run());
//
// A tree walk, bounded by RenderLimits in steps, depth, memory and output. Errors
// read "chat template:LINE:COL: message" with the place of the innermost
// expression that failed. One Interpreter renders once; not thread-safe, but many
// may share a body. Safe for untrusted templates and data.
#pragma once

#include <ctime>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "lib/support/result.h"
#include "lib/text/chat_template/jinja_ast.h"
#include "lib/text/chat_template/jinja_builtins.h"
#include "lib/text/chat_template/jinja_value.h"

namespace ktx::text::jinja {

// Variables of one block. Keys point into the syntax tree.
struct Scope {
  Scope* parent = nullptr;
  std::unordered_map<std::string_view, Value> variables;
  bool captured = false;  // a macro was defined in or below it: lives to the end
};

class Interpreter {
 public:
  Interpreter(const Body& body, const RenderLimits& limits, const std::tm& now);
  ~Interpreter();
  Interpreter(const Interpreter&) = delete;
  Interpreter& operator=(const Interpreter&) = delete;

  void set(std::string name, Value value) { inputs_[std::move(name)] = std::move(value); }
  Result<MarkedText> run();

  // For builtins.
  Meter& meter() { return meter_; }
  const std::tm& now() const { return now_; }
  Result<Value> call(const Value& callee, Args args);
  // object.name and object[key], with Jinja's fallbacks between the two.
  Result<Value> attribute(const Value& object, std::string_view name);
  Result<Value> item(const Value& object, const Value& key);
  Value new_namespace(std::shared_ptr<DictObject> attributes);

 private:
  enum class Flow { Normal, Break, Continue };
  class ScopeGuard;
  class Capture;
  struct RunningLoop;

  Result<Value> eval(const Expr& expr);
  Result<Value> eval(const ExprPtr& expr) { return eval(*expr); }
  Result<Value> eval_node(const ConstExpr& e);
  Result<Value> eval_node(const NameExpr& e);
  Result<Value> eval_node(const ListExpr& e);
  Result<Value> eval_node(const TupleExpr& e);
  Result<Value> eval_node(const DictExpr& e);
  Result<Value> eval_node(const UnaryExpr& e);
  Result<Value> eval_node(const BinaryExpr& e);
  Result<Value> eval_node(const ConcatExpr& e);
  Result<Value> eval_node(const CompareExpr& e);
  Result<Value> eval_node(const ConditionalExpr& e);
  Result<Value> eval_node(const GetAttrExpr& e);
  Result<Value> eval_node(const GetItemExpr& e);
  Result<Value> eval_node(const SliceExpr& e);
  Result<Value> eval_node(const CallExpr& e);
  Result<Value> eval_node(const FilterExpr& e);
  Result<Value> eval_node(const TestExpr& e);
  Result<Args> eval_args(const CallArgs& args);
  Result<std::vector<Value>> eval_all(const std::vector<ExprPtr>& list);
  Result<Value> lookup(std::string_view name);

  Result<Flow> exec(const Body& body);
  Result<Flow> exec(const Stmt& stmt);
  Result<Flow> exec_node(const TextStmt& s);
  Result<Flow> exec_node(const OutputStmt& s);
  Result<Flow> exec_node(const IfStmt& s);
  Result<Flow> exec_node(const ForStmt& s);
  Result<Flow> exec_node(const SetStmt& s);
  Result<Flow> exec_node(const SetBlockStmt& s);
  Result<Flow> exec_node(const std::unique_ptr<MacroStmt>& s);
  Result<Flow> exec_node(const CallBlockStmt& s);
  Result<Flow> exec_node(const FilterBlockStmt& s);
  Result<Flow> exec_node(const WithStmt& s);
  Result<Flow> exec_node(const ScopeStmt& s);
  Result<Flow> exec_node(const BreakStmt&) { return Flow::Break; }
  Result<Flow> exec_node(const ContinueStmt&) { return Flow::Continue; }

  Result<Flow> run_loop(const ForStmt& s, const Value& iterable, Scope* outer, int depth);
  Result<std::optional<Value>> next_item(LoopObject& loop);
  Result<Value> loop_attribute(const Value& loop, std::string_view name);
  Result<Value> loop_length(LoopObject& loop);
  Result<Value> look_ahead(LoopObject& loop);
  Result<Value> call_loop(const Value& loop, Args args);
  Result<Value> call_macro(const CallableObject& macro, Args args);
  Result<Value> macro_attribute(const Value& macro, std::string_view name);
  Value make_macro(const MacroStmt& macro);
  Result<Value> render_body(const Body& body);  // its text
  Status assign(const Target& target, Value value);
  Status emit(std::string_view text);
  Status emit(const Value& value);
  Status deeper(int& depth, int limit, std::string_view what);
  void locate(Loc loc);

  Meter meter_;  // first: every value dies before it
  const Body& body_;
  const std::tm now_;
  std::map<std::string, Value, std::less<>> inputs_;
  std::unordered_map<std::string_view, Value> globals_;
  std::deque<std::unique_ptr<Scope>> kept_;                   // scopes that macros still see
  std::vector<std::shared_ptr<NamespaceObject>> namespaces_;  // emptied at the end: may be cyclic
  Scope root_;
  Scope* scope_ = &root_;
  MarkedText* out_ = nullptr;
  Value block_text_;  // input of a filter or set block's filter
  int eval_depth_ = 0;
  int call_depth_ = 0;
  bool located_ = false;
  Loc error_loc_;
};

}  // namespace ktx::text::jinja

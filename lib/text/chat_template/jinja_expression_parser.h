// The expression half of the template parser, and the token cursor under both.
//
// Precedence, loosest first: a if b else c · or · and · not · comparisons and
// in · + - · ~ · * / // % · ** (left to right, as Jinja2) · unary - + ·
// .name [i] (call) · |filter and `is test`.
#pragma once

#include <string_view>
#include <vector>

#include "lib/support/result.h"
#include "lib/text/chat_template/jinja_ast.h"
#include "lib/text/chat_template/jinja_lexer.h"

namespace ktx::text::jinja {

class ExpressionParser {
 protected:
  explicit ExpressionParser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  Result<ExprPtr> parse_expression(bool with_condition = true);
  // One expression, or a tuple when commas follow; ends before the name `end`.
  Result<ExprPtr> parse_tuple(bool with_condition = true, std::string_view end = "");
  // |filter(…)|… on `input` (null: a block's text); `inline_start` for the first
  // one of `{% filter name %}`, which has no bar.
  Result<ExprPtr> parse_filters(ExprPtr input, bool inline_start = false);
  Result<Target> parse_target(bool with_namespace);
  // Reports the first unknown filter or test outside conditions.
  Status check_names() const;

  Token& current() { return tokens_[at_]; }
  const Token& peek() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  void advance() {
    if (at_ + 1 < tokens_.size()) ++at_;
  }
  bool skip_operator(std::string_view op);
  bool skip_name(std::string_view name);
  Status expect_operator(std::string_view op);
  Result<std::string> expect(TokenKind kind);  // its text
  static std::string describe(const Token& token);

  // Guards recursion; every successful enter() has its leave().
  Status enter();
  void leave() { --depth_; }

  int conditions_ = 0;              // `if` blocks around
  std::vector<MacroStmt*> macros_;  // macros around: marked when they use caller, varargs, kwargs

 private:
  struct UnknownName {
    Loc loc;
    std::string message;
  };

  Result<ExprPtr> parse_operators(int min_level);
  Result<ExprPtr> parse_unary(bool with_filters);
  Result<ExprPtr> parse_primary();
  Result<ExprPtr> parse_postfix(ExprPtr node, bool with_filters);
  Result<ExprPtr> parse_subscript(ExprPtr object);
  Result<ExprPtr> parse_test(ExprPtr input);
  Result<ExprPtr> parse_list();
  Result<ExprPtr> parse_dict();
  Result<ExprPtr> parse_number();
  Result<CallArgs> parse_call_args();
  Result<Target> parse_target_item(bool with_namespace);
  void note_unknown(Loc loc, std::string_view what, std::string_view name);
  void note_macro_use(std::string_view name);

  std::vector<Token> tokens_;
  size_t at_ = 0;
  int depth_ = 0;
  std::vector<UnknownName> unknown_;
};

}  // namespace ktx::text::jinja

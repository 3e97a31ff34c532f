#include "lib/text/chat_template/jinja_expression_parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>

#include "lib/support/strings.h"
#include "lib/text/chat_template/jinja_builtins.h"

namespace ktx::text::jinja {
namespace {

struct Operator {
  std::string_view token;
  int level;
  enum { Binary, Compare, Concat } kind;
  BinaryOp binary = BinaryOp::Add;
  CompareOp compare = CompareOp::Equal;
};

constexpr int kNotLevel = 3;
constexpr size_t kMaxArguments = 255;

constexpr Operator kOperators[] = {
    {"or", 1, Operator::Binary, BinaryOp::Or},
    {"and", 2, Operator::Binary, BinaryOp::And},
    {"==", 4, Operator::Compare, {}, CompareOp::Equal},
    {"!=", 4, Operator::Compare, {}, CompareOp::NotEqual},
    {"<", 4, Operator::Compare, {}, CompareOp::Less},
    {"<=", 4, Operator::Compare, {}, CompareOp::LessEqual},
    {">", 4, Operator::Compare, {}, CompareOp::Greater},
    {">=", 4, Operator::Compare, {}, CompareOp::GreaterEqual},
    {"in", 4, Operator::Compare, {}, CompareOp::In},
    {"not", 4, Operator::Compare, {}, CompareOp::NotIn},  // `not in`
    {"+", 5, Operator::Binary, BinaryOp::Add},
    {"-", 5, Operator::Binary, BinaryOp::Subtract},
    {"~", 6, Operator::Concat},
    {"*", 7, Operator::Binary, BinaryOp::Multiply},
    {"/", 7, Operator::Binary, BinaryOp::Divide},
    {"//", 7, Operator::Binary, BinaryOp::FloorDivide},
    {"%", 7, Operator::Binary, BinaryOp::Modulo},
    {"**", 8, Operator::Binary, BinaryOp::Power},
};

constexpr std::string_view kReserved[] = {"and", "or", "not", "in", "is", "if", "else"};

bool is_reserved(std::string_view name) {
  return std::find(std::begin(kReserved), std::end(kReserved), name) != std::end(kReserved);
}

const Operator* find_operator(const Token& token, const Token& next) {
  if (token.kind != TokenKind::Operator && token.kind != TokenKind::Name) return nullptr;
  for (const Operator& op : kOperators) {
    if (op.token != token.text) continue;
    if (op.compare == CompareOp::NotIn && !next.is_name("in")) return nullptr;
    return &op;
  }
  return nullptr;
}

int depth_of(const ExprPtr& e) {
  return e ? e->depth : 0;
}
int depth_of(const std::vector<ExprPtr>& list) {
  int depth = 0;
  for (const ExprPtr& e : list) depth = std::max(depth, depth_of(e));
  return depth;
}
int depth_of(const CallArgs& args) {
  int depth =
      std::max({depth_of(args.positional), depth_of(args.star), depth_of(args.double_star)});
  for (const auto& [name, e] : args.named) depth = std::max(depth, depth_of(e));
  return depth;
}

// A node whose deepest child is `below` nodes deep.
template <class Node>
Result<ExprPtr> make(Loc loc, int below, Node node) {
  if (below >= kMaxTemplateDepth) {
    return error_at(loc, fmt::format("the expression nests more than {} deep", kMaxTemplateDepth));
  }
  return std::make_unique<Expr>(Expr{loc, below + 1, std::move(node)});
}

}  // namespace

bool ExpressionParser::skip_operator(std::string_view op) {
  const bool found = current().is_operator(op);
  if (found) advance();
  return found;
}

bool ExpressionParser::skip_name(std::string_view name) {
  const bool found = current().is_name(name);
  if (found) advance();
  return found;
}

Status ExpressionParser::expect_operator(std::string_view op) {
  if (skip_operator(op)) return {};
  return error_at(current().loc, fmt::format("expected '{}', got {}", op, describe(current())));
}

Result<std::string> ExpressionParser::expect(TokenKind kind) {
  if (current().kind != kind) {
    const std::string_view wanted = kind == TokenKind::VariableEnd  ? "'}}'"
                                    : kind == TokenKind::BlockEnd   ? "'%}'"
                                    : kind == TokenKind::BlockBegin ? "a tag"
                                                                    : "a name";
    return error_at(current().loc, fmt::format("expected {}, got {}", wanted, describe(current())));
  }
  std::string text = current().text;
  advance();
  return text;
}

std::string ExpressionParser::describe(const Token& token) {
  switch (token.kind) {
    case TokenKind::End:
      return "the end of the template";
    case TokenKind::String:
      return fmt::format("the string '{}'", printable(token.text, 40));
    case TokenKind::Text:
      return "text";
    default:
      return fmt::format("'{}'", printable(token.text, 40));
  }
}

Status ExpressionParser::enter() {
  if (++depth_ > kMaxTemplateDepth) {
    return error_at(current().loc,
                    fmt::format("the template nests more than {} deep", kMaxTemplateDepth));
  }
  return {};
}

void ExpressionParser::note_unknown(Loc loc, std::string_view what, std::string_view name) {
  if (conditions_ > 0) return;
  const std::vector<std::string> names = what == "filter" ? filter_names() : test_names();
  unknown_.push_back(
      {loc, fmt::format("no {} named '{}'{}", what, printable(name), did_you_mean(name, names))});
}

Status ExpressionParser::check_names() const {
  if (unknown_.empty()) return {};
  return error_at(unknown_.front().loc, unknown_.front().message);
}

void ExpressionParser::note_macro_use(std::string_view name) {
  for (MacroStmt* macro : macros_) {
    macro->uses_caller = macro->uses_caller || name == "caller";
    macro->uses_varargs = macro->uses_varargs || name == "varargs";
    macro->uses_kwargs = macro->uses_kwargs || name == "kwargs";
  }
}

Result<ExprPtr> ExpressionParser::parse_expression(bool with_condition) {
  if (!with_condition) return parse_operators(1);
  KTX_TRY(enter());
  const size_t unknown = unknown_.size();
  ExprPtr node = KTX_TRY(parse_operators(1));
  while (current().is_name("if")) {
    const Loc loc = current().loc;
    advance();
    ExprPtr condition = KTX_TRY(parse_operators(1));
    ExprPtr otherwise;
    if (skip_name("else")) otherwise = KTX_TRY(parse_expression());
    const int below = std::max({depth_of(node), depth_of(condition), depth_of(otherwise)});
    node = KTX_TRY(make(
        loc, below, ConditionalExpr{std::move(condition), std::move(node), std::move(otherwise)}));
    unknown_.resize(unknown);
  }
  leave();
  return node;
}

Result<ExprPtr> ExpressionParser::parse_operators(int min_level) {
  KTX_TRY(enter());
  ExprPtr left;
  if (min_level <= kNotLevel && current().is_name("not")) {
    const Loc loc = current().loc;
    advance();
    ExprPtr operand = KTX_TRY(parse_operators(kNotLevel));
    const int below = depth_of(operand);
    left = KTX_TRY(make(loc, below, UnaryExpr{UnaryOp::Not, std::move(operand)}));
  } else {
    left = KTX_TRY(parse_unary(true));
  }
  while (const Operator* op = find_operator(current(), peek())) {
    if (op->level < min_level) break;
    const Loc loc = current().loc;
    int below = depth_of(left);
    if (op->kind == Operator::Binary) {
      advance();
      ExprPtr right = KTX_TRY(parse_operators(op->level + 1));
      below = std::max(below, depth_of(right));
      left = KTX_TRY(make(loc, below, BinaryExpr{op->binary, std::move(left), std::move(right)}));
    } else if (op->kind == Operator::Concat) {
      ConcatExpr node;
      node.parts.push_back(std::move(left));
      while (skip_operator("~")) {
        node.parts.push_back(KTX_TRY(parse_operators(op->level + 1)));
      }
      below = depth_of(node.parts);
      left = KTX_TRY(make(loc, below, std::move(node)));
    } else {
      CompareExpr node;
      node.first = std::move(left);
      for (; op != nullptr && op->kind == Operator::Compare;
           op = find_operator(current(), peek())) {
        advance();
        if (op->compare == CompareOp::NotIn) advance();
        ExprPtr right = KTX_TRY(parse_operators(op->level + 1));
        below = std::max(below, depth_of(right));
        node.rest.emplace_back(op->compare, std::move(right));
      }
      left = KTX_TRY(make(loc, below, std::move(node)));
    }
  }
  leave();
  return left;
}

Result<ExprPtr> ExpressionParser::parse_unary(bool with_filters) {
  const Loc loc = current().loc;
  const bool negates = current().is_operator("-");
  if (!negates && !current().is_operator("+")) {
    return parse_postfix(KTX_TRY(parse_primary()), with_filters);
  }
  KTX_TRY(enter());
  advance();
  ExprPtr operand = KTX_TRY(parse_unary(false));
  const int below = depth_of(operand);
  ExprPtr node = KTX_TRY(
      make(loc, below, UnaryExpr{negates ? UnaryOp::Negate : UnaryOp::Plus, std::move(operand)}));
  leave();
  return parse_postfix(std::move(node), with_filters);
}

Result<ExprPtr> ExpressionParser::parse_primary() {
  const Token& token = current();
  const Loc loc = token.loc;
  if (token.kind == TokenKind::Name) {
    const std::string name = token.text;
    if (is_reserved(name)) return error_at(loc, fmt::format("unexpected '{}'", name));
    advance();
    if (name == "true" || name == "True") return make(loc, 0, ConstExpr{Value::boolean(true)});
    if (name == "false" || name == "False") return make(loc, 0, ConstExpr{Value::boolean(false)});
    if (name == "none" || name == "None") return make(loc, 0, ConstExpr{Value::none()});
    note_macro_use(name);
    return make(loc, 0, NameExpr{name});
  }
  if (token.kind == TokenKind::String) {
    std::string text;
    for (; current().kind == TokenKind::String; advance()) text += current().text;
    return make(loc, 0, ConstExpr{make_constant(std::move(text))});
  }
  if (token.kind == TokenKind::Integer || token.kind == TokenKind::Float) return parse_number();
  if (token.is_operator("[")) return parse_list();
  if (token.is_operator("{")) return parse_dict();
  if (token.is_operator("(")) {
    advance();
    if (skip_operator(")")) return make(loc, 0, TupleExpr{});
    ExprPtr node = KTX_TRY(parse_tuple());
    KTX_TRY(expect_operator(")"));
    return node;
  }
  if (token.kind == TokenKind::VariableEnd || token.kind == TokenKind::BlockEnd) {
    return error_at(loc, fmt::format("expected an expression, got {}", describe(token)));
  }
  return error_at(loc, fmt::format("unexpected {}", describe(token)));
}

Result<ExprPtr> ExpressionParser::parse_number() {
  const Token token = current();
  advance();
  if (token.kind == TokenKind::Float) {
    return make(token.loc, 0, ConstExpr{Value::real(std::strtod(token.text.c_str(), nullptr))});
  }
  std::string_view digits = token.text;
  int base = 10;
  if (digits.size() > 2 && digits[0] == '0' && (digits[1] < '0' || digits[1] > '9')) {
    const char mark = static_cast<char>(digits[1] | 0x20);
    base = mark == 'x' ? 16 : mark == 'o' ? 8 : 2;
    digits.remove_prefix(2);
  }
  int64_t value = 0;
  const auto [end, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), value, base);
  if (error != std::errc() || end != digits.data() + digits.size()) {
    return error_at(token.loc,
                    fmt::format("integer {} does not fit in 64 bits", printable(token.text, 40)));
  }
  return make(token.loc, 0, ConstExpr{Value::integer(value)});
}

Result<ExprPtr> ExpressionParser::parse_tuple(bool with_condition, std::string_view end) {
  const Loc loc = current().loc;
  const auto at_end = [&] {
    return current().kind == TokenKind::VariableEnd || current().kind == TokenKind::BlockEnd ||
           current().is_operator(")") || (!end.empty() && current().is_name(end));
  };
  TupleExpr tuple;
  bool is_tuple = false;
  while (true) {
    if (at_end()) break;
    tuple.items.push_back(KTX_TRY(parse_expression(with_condition)));
    if (!skip_operator(",")) break;
    is_tuple = true;
  }
  if (!is_tuple) {
    if (!tuple.items.empty()) return std::move(tuple.items[0]);
    return error_at(loc, fmt::format("expected an expression, got {}", describe(current())));
  }
  const int below = depth_of(tuple.items);
  return make(loc, below, std::move(tuple));
}

Result<ExprPtr> ExpressionParser::parse_list() {
  const Loc loc = current().loc;
  KTX_TRY(expect_operator("["));
  ListExpr node;
  while (!current().is_operator("]")) {
    if (!node.items.empty()) KTX_TRY(expect_operator(","));
    if (current().is_operator("]")) break;
    node.items.push_back(KTX_TRY(parse_expression()));
  }
  KTX_TRY(expect_operator("]"));
  const int below = depth_of(node.items);
  return make(loc, below, std::move(node));
}

Result<ExprPtr> ExpressionParser::parse_dict() {
  const Loc loc = current().loc;
  KTX_TRY(expect_operator("{"));
  DictExpr node;
  int below = 0;
  while (!current().is_operator("}")) {
    if (!node.entries.empty()) KTX_TRY(expect_operator(","));
    if (current().is_operator("}")) break;
    ExprPtr key = KTX_TRY(parse_expression());
    KTX_TRY(expect_operator(":"));
    ExprPtr value = KTX_TRY(parse_expression());
    below = std::max({below, depth_of(key), depth_of(value)});
    node.entries.emplace_back(std::move(key), std::move(value));
  }
  KTX_TRY(expect_operator("}"));
  return make(loc, below, std::move(node));
}

Result<ExprPtr> ExpressionParser::parse_postfix(ExprPtr node, bool with_filters) {
  bool filtered = false;  // behind a filter or test only calls follow
  while (true) {
    const Token& token = current();
    const Loc loc = token.loc;
    if (token.is_operator("(")) {
      CallArgs args = KTX_TRY(parse_call_args());
      const int below = std::max(depth_of(node), depth_of(args));
      node = KTX_TRY(make(loc, below, CallExpr{std::move(node), std::move(args)}));
    } else if (!filtered && (token.is_operator(".") || token.is_operator("["))) {
      node = KTX_TRY(parse_subscript(std::move(node)));
    } else if (with_filters && token.is_operator("|")) {
      node = KTX_TRY(parse_filters(std::move(node)));
      filtered = true;
    } else if (with_filters && token.is_name("is")) {
      node = KTX_TRY(parse_test(std::move(node)));
      filtered = true;
    } else {
      return node;
    }
  }
}

Result<ExprPtr> ExpressionParser::parse_subscript(ExprPtr object) {
  const Loc loc = current().loc;
  if (skip_operator(".")) {
    const Token token = current();
    const int below = depth_of(object);
    if (token.kind == TokenKind::Name) {
      advance();
      return make(loc, below, GetAttrExpr{std::move(object), token.text});
    }
    if (token.kind != TokenKind::Integer) {
      return error_at(token.loc,
                      fmt::format("expected a name or a number, got {}", describe(token)));
    }
    ExprPtr index = KTX_TRY(parse_number());
    return make(loc, below + 1, GetItemExpr{std::move(object), std::move(index)});
  }
  KTX_TRY(expect_operator("["));
  ExprPtr start, stop, step;
  if (!current().is_operator(":")) {
    start = KTX_TRY(parse_tuple());
    if (skip_operator("]")) {
      const int below = std::max(depth_of(object), depth_of(start));
      return make(loc, below, GetItemExpr{std::move(object), std::move(start)});
    }
  }
  KTX_TRY(expect_operator(":"));
  if (!current().is_operator(":") && !current().is_operator("]")) {
    stop = KTX_TRY(parse_expression());
  }
  if (skip_operator(":") && !current().is_operator("]")) step = KTX_TRY(parse_expression());
  KTX_TRY(expect_operator("]"));
  const int below = std::max({depth_of(object), depth_of(start), depth_of(stop), depth_of(step)});
  return make(loc, below,
              SliceExpr{std::move(object), std::move(start), std::move(stop), std::move(step)});
}

Result<CallArgs> ExpressionParser::parse_call_args() {
  const Loc loc = current().loc;
  KTX_TRY(expect_operator("("));
  CallArgs args;
  const auto refuse = [&] { return error_at(loc, "the call's arguments are in a wrong order"); };
  bool first = true;
  while (!current().is_operator(")")) {
    if (!first) {
      KTX_TRY(expect_operator(","));
      if (current().is_operator(")")) break;
    }
    first = false;
    if (args.positional.size() + args.named.size() >= kMaxArguments) {
      return error_at(loc, fmt::format("the call has more than {} arguments", kMaxArguments));
    }
    if (skip_operator("*")) {
      if (args.star || args.double_star) return refuse();
      args.star = KTX_TRY(parse_expression());
    } else if (skip_operator("**")) {
      if (args.double_star) return refuse();
      args.double_star = KTX_TRY(parse_expression());
    } else if (current().kind == TokenKind::Name && peek().is_operator("=")) {
      if (args.double_star) return refuse();
      std::string name = current().text;
      advance();
      advance();
      for (const auto& [other, value] : args.named) {
        if (other == name) {
          return error_at(loc, fmt::format("the argument '{}' is given twice", printable(name)));
        }
      }
      args.named.emplace_back(std::move(name), KTX_TRY(parse_expression()));
    } else {
      if (args.star || args.double_star || !args.named.empty()) return refuse();
      args.positional.push_back(KTX_TRY(parse_expression()));
    }
  }
  KTX_TRY(expect_operator(")"));
  return args;
}

Result<ExprPtr> ExpressionParser::parse_filters(ExprPtr input, bool inline_start) {
  while (inline_start || current().is_operator("|")) {
    if (!inline_start) advance();
    inline_start = false;
    const Loc loc = current().loc;
    std::string name = KTX_TRY(expect(TokenKind::Name));
    while (skip_operator(".")) {
      name += '.';
      name += KTX_TRY(expect(TokenKind::Name));
    }
    const Builtin* filter = find_filter(name);
    if (filter == nullptr) note_unknown(loc, "filter", name);
    CallArgs args;
    if (current().is_operator("(")) args = KTX_TRY(parse_call_args());
    const int below = std::max(depth_of(input), depth_of(args));
    input = KTX_TRY(
        make(loc, below, FilterExpr{std::move(input), std::move(name), filter, std::move(args)}));
  }
  return input;
}

Result<ExprPtr> ExpressionParser::parse_test(ExprPtr input) {
  const Loc loc = current().loc;
  advance();  // is
  const bool negated = skip_name("not");
  const Loc name_loc = current().loc;
  std::string name = KTX_TRY(expect(TokenKind::Name));
  while (skip_operator(".")) {
    name += '.';
    name += KTX_TRY(expect(TokenKind::Name));
  }
  const Builtin* test = find_test(name);
  if (test == nullptr) note_unknown(name_loc, "test", name);
  CallArgs args;
  const Token& token = current();
  const bool has_argument = (token.kind == TokenKind::Name && !is_reserved(token.text)) ||
                            token.kind == TokenKind::String || token.kind == TokenKind::Integer ||
                            token.kind == TokenKind::Float || token.is_operator("[") ||
                            token.is_operator("{");
  if (token.is_operator("(")) {
    args = KTX_TRY(parse_call_args());
  } else if (token.is_name("is")) {
    return error_at(token.loc, "tests cannot be chained with `is`; write `a is x and a is y`");
  } else if (has_argument) {
    args.positional.push_back(KTX_TRY(parse_postfix(KTX_TRY(parse_primary()), false)));
  }
  int below = std::max(depth_of(input), depth_of(args));
  ExprPtr node =
      KTX_TRY(make(loc, below, TestExpr{std::move(input), std::move(name), test, std::move(args)}));
  if (!negated) return node;
  below = depth_of(node);
  return make(loc, below, UnaryExpr{UnaryOp::Not, std::move(node)});
}

Result<Target> ExpressionParser::parse_target_item(bool with_namespace) {
  KTX_TRY(enter());
  Target target;
  target.loc = current().loc;
  if (skip_operator("(")) {
    target = KTX_TRY(parse_target(with_namespace));
    KTX_TRY(expect_operator(")"));
    leave();
    return target;
  }
  target.name = KTX_TRY(expect(TokenKind::Name));
  static constexpr std::string_view kConstants[] = {"true",  "True", "false",
                                                    "False", "none", "None"};
  if (is_reserved(target.name) || std::find(std::begin(kConstants), std::end(kConstants),
                                            target.name) != std::end(kConstants)) {
    return error_at(target.loc, fmt::format("cannot assign to '{}'", target.name));
  }
  if (with_namespace && skip_operator(".")) target.attribute = KTX_TRY(expect(TokenKind::Name));
  leave();
  return target;
}

Result<Target> ExpressionParser::parse_target(bool with_namespace) {
  Target first = KTX_TRY(parse_target_item(with_namespace));
  if (!current().is_operator(",")) return first;
  Target tuple;
  tuple.loc = first.loc;
  tuple.is_tuple = true;
  tuple.items.push_back(std::move(first));
  while (skip_operator(",")) {
    if (current().kind != TokenKind::Name && !current().is_operator("(")) break;
    if (current().is_name("in")) break;
    tuple.items.push_back(KTX_TRY(parse_target_item(with_namespace)));
  }
  return tuple;
}

}  // namespace ktx::text::jinja

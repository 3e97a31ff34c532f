#include "lib/text/grammar/grammar_rules.h"

#include <algorithm>

namespace ktx::text::grammar {
namespace {

constexpr CodeRange kSurrogates = {0xD800, 0xDFFF};

}  // namespace

std::vector<CodeRange> complement(std::vector<CodeRange> ranges) {
  ranges.push_back(kSurrogates);
  std::sort(ranges.begin(), ranges.end(),
            [](const CodeRange& a, const CodeRange& b) { return a.first < b.first; });
  std::vector<CodeRange> out;
  uint32_t next = 0;
  for (const CodeRange& range : ranges) {
    if (range.first > next) out.push_back({next, range.first - 1});
    next = std::max(next, range.last + 1);
  }
  if (next <= kMaxCodePoint) out.push_back({next, kMaxCodePoint});
  return out;
}

int GrammarRules::add(Expr expr) {
  if (exprs.size() >= kMaxExpressions) {
    ++dropped_;
    return 0;
  }
  exprs.push_back(std::move(expr));
  return static_cast<int>(exprs.size()) - 1;
}

int GrammarRules::text(std::string_view bytes) {
  Expr expr;
  expr.text = bytes;
  return add(std::move(expr));
}

int GrammarRules::one_of(std::vector<CodeRange> ranges) {
  Expr expr;
  expr.kind = ExprKind::Class;
  expr.ranges = std::move(ranges);
  return add(std::move(expr));
}

int GrammarRules::sequence(std::vector<int> parts) {
  if (parts.size() == 1) return parts[0];
  Expr expr;
  expr.kind = ExprKind::Sequence;
  expr.parts = std::move(parts);
  return add(std::move(expr));
}

int GrammarRules::alternatives(std::vector<int> parts) {
  if (parts.size() == 1) return parts[0];
  Expr expr;
  expr.kind = ExprKind::Alternatives;
  expr.parts = std::move(parts);
  return add(std::move(expr));
}

int GrammarRules::repeat(int part, int min, int max) {
  Expr expr;
  expr.kind = ExprKind::Repeat;
  expr.parts = {part};
  expr.min = min;
  expr.max = max;
  return add(std::move(expr));
}

int GrammarRules::list(int item, int separator, int min, int max) {
  Expr expr;
  expr.kind = ExprKind::List;
  expr.parts = {item, separator};
  expr.min = min;
  expr.max = max;
  return add(std::move(expr));
}

int GrammarRules::joined(int separator, std::vector<int> items, std::vector<bool> required) {
  Expr expr;
  expr.kind = ExprKind::Joined;
  expr.parts = {separator};
  expr.parts.insert(expr.parts.end(), items.begin(), items.end());
  expr.required = std::move(required);
  return add(std::move(expr));
}

int GrammarRules::set(RegularSet texts) {
  Expr expr;
  expr.kind = ExprKind::Set;
  expr.set = static_cast<int>(sets.size());
  sets.push_back(std::move(texts));
  return add(std::move(expr));
}

int GrammarRules::token(int32_t id, bool others) {
  Expr expr;
  expr.kind = ExprKind::Token;
  expr.token = id;
  expr.others = others;
  return add(std::move(expr));
}

int GrammarRules::rule(int index) {
  Expr expr;
  expr.kind = ExprKind::Rule;
  expr.rule = index;
  return add(std::move(expr));
}

int GrammarRules::add_rule(std::string_view name) {
  rules.push_back({std::string(name), -1});
  return static_cast<int>(rules.size()) - 1;
}

}  // namespace ktx::text::grammar

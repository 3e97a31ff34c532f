#include "lib/text/grammar/expr_table.h"

#include <algorithm>
#include <span>

#include "lib/text/grammar/token_terminals.h"

namespace ktx::text::grammar {
namespace {

constexpr int64_t kInlineSize = 300;  // states of a rule that is copied into its callers
constexpr int kInlineDepth = 100;     // of expressions in each other
constexpr int64_t kFewCopies = 4;     // no loop

// Marks the expressions of recursions: strongly connected components (Tarjan), without
// recursion of our own, since a hostile grammar may be a chain of 100,000 rules.
class Recursions {
 public:
  Recursions(const GrammarRules& rules, std::vector<ExprFacts>& facts)
      : rules_(rules), facts_(facts), order_(rules.exprs.size(), 0), low_(rules.exprs.size(), 0) {}

  void mark_from(int root) {
    enter(root);
    while (!path_.empty()) {
      auto& [expr, next] = path_.back();
      if (next < parts(expr).size()) {
        const int part = parts(expr)[next++];
        if (order_[part] == 0) {
          enter(part);
        } else if (on_stack_[part]) {
          low_[expr] = std::min(low_[expr], order_[part]);
          if (part == expr) facts_[expr].cyclic = true;
        }
        continue;
      }
      leave(expr);
    }
  }

 private:
  struct Step {
    int expr;
    size_t next;
  };

  std::span<const int> parts(int expr) const {
    const Expr& e = rules_.exprs[expr];
    if (e.kind == ExprKind::Rule) return {&rules_.rules[e.rule].expr, 1};
    return e.parts;
  }
  void enter(int expr) {
    on_stack_.resize(order_.size());
    order_[expr] = low_[expr] = ++count_;
    stack_.push_back(expr);
    on_stack_[expr] = true;
    path_.push_back({expr, 0});
  }
  void leave(int expr) {
    path_.pop_back();
    if (!path_.empty()) {
      low_[path_.back().expr] = std::min(low_[path_.back().expr], low_[expr]);
    }
    if (low_[expr] != order_[expr]) return;
    const bool alone = stack_.back() == expr;
    while (true) {
      const int member = stack_.back();
      stack_.pop_back();
      on_stack_[member] = false;
      if (!alone) facts_[member].cyclic = true;
      if (member == expr) break;
    }
  }

  const GrammarRules& rules_;
  std::vector<ExprFacts>& facts_;
  std::vector<int> order_, low_;
  std::vector<bool> on_stack_;
  std::vector<int> stack_;
  std::vector<Step> path_;
  int count_ = 0;
};

}  // namespace

// Sizes and depths, parts before wholes; a recursion is a call and ends there.
ExprTable::ExprTable(const GrammarRules& rules, const LoopChoice& loops)
    : rules_(rules), loops_(loops), facts_(rules.exprs.size()), uses_(rules.rules.size(), 0) {
  for (const Expr& expr : rules_.exprs) {
    for (const int part : expr.parts) ++facts_[part].uses;
    if (expr.kind == ExprKind::Rule) ++uses_[expr.rule];
  }
  const int root = rules_.rules[rules_.root].expr;
  Recursions(rules_, facts_).mark_from(root);
  std::vector<int> order;
  find_order(root, order);
  find_nullable(order);
  for (const int index : order) measure(index, facts_[index]);
}

bool ExprTable::called(const Expr& expr) const {
  const ExprFacts& target = facts_[rules_.rules[expr.rule].expr];
  return target.cyclic || target.depth > kInlineDepth ||
         (target.size > kInlineSize && uses_[expr.rule] > 1);
}

bool ExprTable::shared(int set) const {
  return facts_[set].size > kInlineSize && facts_[set].uses > 1;
}

bool ExprTable::is_loop(int index) const {
  const Expr& expr = rules_.exprs[index];
  if (expr.kind != ExprKind::Repeat && expr.kind != ExprKind::List) return false;
  const int64_t count = copies(expr);
  int64_t item = 0;
  for (const int part : expr.parts) item += facts_[part].size;
  return count > kFewCopies && count > loops_.most_copied / std::max<int64_t>(item, 1) &&
         !facts_[expr.parts[0]].nullable && !loops_.copied.contains(index);
}

int64_t ExprTable::copies(const Expr& expr) {
  return std::max<int64_t>(1, std::max(expr.min, expr.max));
}

void ExprTable::find_order(int root, std::vector<int>& order) const {
  std::vector<std::pair<int, bool>> todo = {{root, false}};
  std::vector<uint8_t> seen(rules_.exprs.size(), 0);
  while (!todo.empty()) {
    const auto [index, ready] = todo.back();
    todo.pop_back();
    const Expr& expr = rules_.exprs[index];
    if (ready) {
      order.push_back(index);
      continue;
    }
    if (seen[index]) continue;
    seen[index] = 1;
    todo.push_back({index, true});
    for (const int part : expr.parts) todo.push_back({part, false});
    if (expr.kind == ExprKind::Rule) todo.push_back({rules_.rules[expr.rule].expr, false});
  }
}

void ExprTable::find_nullable(const std::vector<int>& order) {
  constexpr int kMostRounds = 32;  // of recursions in each other
  bool changed = true;
  for (int round = 0; changed && round < kMostRounds; ++round) {
    changed = false;
    for (const int index : order) {
      if (facts_[index].nullable || !may_be_empty(rules_.exprs[index])) continue;
      facts_[index].nullable = changed = true;
    }
  }
  // Not known: then nothing is a loop.
  for (const int index : order) facts_[index].nullable |= changed;
}

bool ExprTable::may_be_empty(const Expr& expr) const {
  const auto empty = [&](int part) { return facts_[part].nullable; };
  switch (expr.kind) {
    case ExprKind::Text:
      return expr.text.empty();
    case ExprKind::Sequence:
      return std::all_of(expr.parts.begin(), expr.parts.end(), empty);
    case ExprKind::Alternatives:
      return std::any_of(expr.parts.begin(), expr.parts.end(), empty);
    case ExprKind::Repeat:
    case ExprKind::List:
      return expr.min == 0 || (empty(expr.parts[0]) && empty(expr.parts.back()));
    case ExprKind::Joined:
      return std::find(expr.required.begin(), expr.required.end(), true) == expr.required.end() ||
             std::any_of(expr.parts.begin() + 1, expr.parts.end(), empty);
    case ExprKind::Set:
      return !rules_.sets[expr.set].is_empty() && rules_.sets[expr.set].states[0].accepts;
    case ExprKind::Rule:
      return facts_[rules_.rules[expr.rule].expr].nullable;
    default:
      return false;
  }
}

void ExprTable::measure(int index, ExprFacts& facts) const {
  constexpr int64_t kHuge = int64_t{1} << 40;
  const Expr& expr = rules_.exprs[index];
  for (const int part : expr.parts) {
    facts.size += facts_[part].size;
    facts.depth = std::max(facts.depth, facts_[part].depth);
  }
  ++facts.depth;
  switch (expr.kind) {
    case ExprKind::Text:
      facts.size = static_cast<int64_t>(expr.text.size());
      break;
    case ExprKind::Class:
      facts.size = static_cast<int64_t>(3 * expr.ranges.size());
      break;
    case ExprKind::Token:
      facts.size = 2 * (kTokenNumberBytes + 1);
      break;
    case ExprKind::Repeat:
    case ExprKind::List:
      if (is_loop(index)) break;
      facts.size = facts.size > kHuge / copies(expr) ? kHuge : facts.size * copies(expr);
      break;
    case ExprKind::Set:
      for (const RegularSet::State& state : rules_.sets[expr.set].states) {
        facts.size += 1 + static_cast<int64_t>(3 * state.edges.size());
      }
      break;
    case ExprKind::Rule: {
      const ExprFacts& target = facts_[rules_.rules[expr.rule].expr];
      if (!called(expr)) facts.size = target.size, facts.depth = target.depth + 1;
      break;
    }
    default:
      break;
  }
  facts.size = std::min(facts.size + 2, kHuge);
}

}  // namespace ktx::text::grammar

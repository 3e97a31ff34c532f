// What is known of each expression of a grammar before any state is made: how many states it takes,
// how deep it nests, and what follows from that: which rules are called, which repetitions are
// loops.
#pragma once

#include <cstdint>
#include <unordered_set>
#include <vector>

#include "lib/text/grammar/grammar_rules.h"

namespace ktx::text::grammar {

// Which repetitions are loops (grammar_fragments.h).
struct LoopChoice {
  int64_t most_copied = 6000;      // states, about, of all copies
  std::unordered_set<int> copied;  // expressions that are none: their items cannot be counted
};

struct ExprFacts {
  int64_t size = 0;  // states it takes, about
  int depth = 0;
  bool cyclic = false;  // part of a recursion
  bool nullable = false;
  int uses = 0;
};

// Holds its arguments. Linear in the size of the grammar.
class ExprTable {
 public:
  // The rules have a root, and all that are used are defined.
  ExprTable(const GrammarRules& rules, const LoopChoice& loops);

  int64_t size(int expr) const { return facts_[expr].size; }
  // Whether a rule is called, not copied into this caller.
  bool called(const Expr& rule) const;
  // Whether a set is called where it stands, for it is large and stands in several places.
  bool shared(int set) const;
  // Whether a repetition is a loop in place of copies.
  bool is_loop(int expr) const;
  // How many copies a repetition has of its item.
  static int64_t copies(const Expr& repetition);

 private:
  void find_order(int root, std::vector<int>& order) const;
  void find_nullable(const std::vector<int>& order);
  bool may_be_empty(const Expr& expr) const;
  void measure(int index, ExprFacts& facts) const;

  const GrammarRules& rules_;
  const LoopChoice& loops_;
  std::vector<ExprFacts> facts_;
  std::vector<int> uses_;  // of rules
};

}  // namespace ktx::text::grammar

// Nondeterministic automata for expressions: the step between rules and the automaton that
// matches. All units share one graph of states; a unit is a rule (or a part that is repeated
// often) that is called instead of copied into its callers.
//
// A rule becomes a unit if it is recursive, if it is large and used more than once, or if
// inlining it would make the nesting too deep.
//
// A repetition is copies of its item, or, where these would take many states, a loop: its item is a
// unit that is called again and again, and the matcher counts:
//
//   [a-z]{2,3}        two copies and one that may be absent
//   [^"]{0,100000}    a loop of one state
#pragma once

#include <cstdint>
#include <vector>

#include "lib/support/result.h"
#include "lib/text/grammar/expr_table.h"
#include "lib/text/grammar/grammar_rules.h"

namespace ktx::text::grammar {

struct ByteEdge {
  uint8_t low, high;
  uint32_t target;
};
struct UnitEdge {
  uint32_t unit;
  uint32_t target;
  int32_t loop = -1;  // the first call of one; -1: of none
};
// `min` to `max` calls: of the unit of its edge, and then of `next`, which begins with the
// separator. No item may be empty.
struct UnitLoop {
  uint32_t next = 0;
  int min = 1, max = kNoLimit;
  int expr = -1;  // the repetition
};

struct FragmentState {
  std::vector<uint32_t> empty;  // edges that take no byte
  std::vector<ByteEdge> bytes;
  std::vector<UnitEdge> units;
};

struct Unit {
  int expr = -1;
  uint32_t start = 0;
  uint32_t end = 0;
  int32_t again = -1;  // the unit that may come behind it where it is the item of a loop
  int separator = -1;  // an expression in front of the call of the unit `item`, instead of `expr`
  int32_t item = -1;
};

struct Fragments {
  std::vector<FragmentState> states;
  std::vector<Unit> units;  // the first is the root
  std::vector<UnitLoop> loops;
};

// `full` is set where an error is one of size.
Result<Fragments> build_fragments(const GrammarRules& rules, const LoopChoice& loops, bool& full);

}  // namespace ktx::text::grammar

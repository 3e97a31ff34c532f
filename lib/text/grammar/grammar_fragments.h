// Nondeterministic automata for expressions: the step between rules and the automaton that
// matches. All units share one graph of states; a unit is a rule (or a part that is repeated
// often) that is called instead of copied into its callers.
//
// A rule becomes a unit if it is recursive, if it is large and used more than once, or if
// inlining it would make the nesting too deep.
#pragma once

#include <cstdint>
#include <vector>

#include "lib/support/result.h"
#include "lib/text/grammar/grammar_rules.h"

namespace ktx::text::grammar {

struct ByteEdge {
  uint8_t low, high;
  uint32_t target;
};
struct UnitEdge {
  uint32_t unit;
  uint32_t target;
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
};

struct Fragments {
  std::vector<FragmentState> states;
  std::vector<Unit> units;  // the first is the root
};

Result<Fragments> build_fragments(const GrammarRules& rules);

}  // namespace ktx::text::grammar

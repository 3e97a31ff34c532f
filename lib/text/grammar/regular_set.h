// Sets of texts as deterministic automata over code points, for what expressions cannot say: texts
// of two sets at once, and texts of one that are not of another.
//
//   the texts of ^[a-z]+$ that are not "id":   without(set of the pattern, set of "id")
//
// Every state can reach the end of a text, so a set without states is empty. Work is bounded.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "lib/support/result.h"

namespace ktx::text::grammar {

struct GrammarRules;

struct RegularSet {
  struct Edge {
    uint32_t first = 0, last = 0;  // code points, both included
    uint32_t target = 0;
  };
  struct State {
    bool accepts = false;
    std::vector<Edge> edges;  // in order, none overlap
  };
  std::vector<State> states;  // the first is the start

  bool is_empty() const { return states.empty(); }
  bool contains(std::string_view text) const;
};

// What making sets may still cost: edges looked at, some 20 ns each.
struct RegularWork {
  uint64_t left = 4'000'000;
  bool spend(uint64_t work);
};

// The texts that an expression matches. An error where it refers to a rule or takes too much work.
Result<RegularSet> regular_set(const GrammarRules& rules, int expr, RegularWork& work);
Result<RegularSet> common(const RegularSet& a, const RegularSet& b, RegularWork& work);
Result<RegularSet> without(const RegularSet& a, const RegularSet& b, RegularWork& work);

}  // namespace ktx::text::grammar

// Decides which rule applies to which module, with KTransformers' semantics.
//
// Modules are visited depth-first, parents first, and the first rule that matches a module
// wins. `class` is an isinstance test (class, other spellings of it, base classes); `name` is a
// regex searched anywhere in the path. Below a module whose winning rule says `recursive:
// false`, nothing is matched. The modules of single experts, which the graph does not store,
// take part as if they were there.
//
// Safe for hostile patterns: a pattern that exceeds its limits matches nothing from then on and
// is named in `too_slow`.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "lib/ir/module_graph.h"
#include "lib/rules/rule.h"

namespace ktx::rules {

inline constexpr int kNoRule = -1;
inline constexpr int kNotVisited = -2;

enum class Verdict {
  Wins,         // decides some module
  Dead,         // no module satisfies it
  Unreachable,  // only modules below a `recursive: false` do
  Shadowed,     // only modules that other rules take do
};
std::string_view name(Verdict verdict);  // "dead"

struct RuleOutcome {
  Verdict verdict = Verdict::Dead;
  int64_t won = 0;
  int64_t lost = 0;               // satisfied by modules that rules before it take
  std::map<int, int64_t> takers;  // those rules, and how many each takes
  std::string first_won;          // paths, "" when there is none
  std::string first_lost;
  // For rules that win nothing: a module that is out of reach and the rule above it.
  std::string first_unreachable;
  int blocker = kNoRule;
  // For dead rules with a class: modules that all but the class would match.
  int64_t without_class = 0;
  std::string class_found;  // of the first of these
  std::string path_found;
};

// The rule that decides the weights of a stacked experts module when no rule
// decides the module itself: that of the experts' own linear layers.
struct MatchResult {
  std::vector<int> rule_of_module;    // index of the rule, kNoRule or kNotVisited
  std::vector<int> rule_of_experts;   // by module; kNoRule where it does not apply
  std::vector<RuleOutcome> outcomes;  // by rule
  std::vector<int> too_slow;          // rules whose pattern ran into its limits
  int64_t modules = 0;                // all, those of single experts included
  int64_t visited = 0;
  int64_t without_rule = 0;
};

MatchResult match(const RuleSet& rules, const ir::ModuleGraph& graph);

// Whether the rule, met alone, takes this module; for --explain.
bool matches(const Rule& rule, const ir::Module& module);

}  // namespace ktx::rules

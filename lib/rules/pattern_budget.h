// What the patterns of rule files may cost: steps of the matcher, never seconds, so
// that a check ends alike on every machine, busy or not.
//
//   PatternBudget budget(rules.size());
//   budget.test(rule, regex, path);   // Match, None, or Limit: this rule is out
//
// A search is tried with few steps first, which is free: no pattern of a real file
// needs more than four on any module path. One that needs more is begun anew with more
// and charged what it is allowed. A rule is out (every further test says Limit) once
// one path needs more than the last of these limits, once its own steps are spent, or,
// when those of all rules are, once it has used a hundredth of its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "lib/support/regex.h"

namespace ktx::rules {

class PatternBudget {
 public:
  explicit PatternBudget(size_t rules) : rules_(rules) {}

  Regex::Outcome test(size_t rule, const Regex& regex, std::string_view path);
  bool is_out(size_t rule) const { return rules_[rule].out; }
  uint64_t steps(size_t rule) const { return rules_[rule].steps; }  // charged so far

 private:
  struct OfRule {
    uint64_t steps = 0;
    bool out = false;
  };
  std::vector<OfRule> rules_;
  uint64_t all_steps_ = 0;
  RegexTester tester_;
};

}  // namespace ktx::rules

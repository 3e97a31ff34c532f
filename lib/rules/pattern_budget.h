// Limits the cost of the patterns of rule files, in steps of the matcher and never in seconds,
// so that a check gives the same result on every machine, busy or not.
//
//   PatternBudget budget(rules.size());
//   budget.test(rule, regex, path);   // Match, None, or Limit: this rule is out
//
// A search first runs with few steps, which are free: no pattern of a real file needs more than
// four steps on any module path. A pattern that needs more starts again with a larger limit and
// is charged for it. A rule is excluded (every further test returns Limit) when one path needs
// more than the largest limit, when its own steps are spent, or, once the steps of all rules
// are spent, when it has used a hundredth of its own.
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

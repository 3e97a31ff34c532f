#include "lib/rules/pattern_budget.h"

#include <gtest/gtest.h>

#include <string>

namespace ktx::rules {
namespace {

using Outcome = Regex::Outcome;

TEST(PatternBudget, FindsWhatThePatternFinds) {
  PatternBudget budget(1);
  const Regex regex = Regex::compile("\\.mlp\\.experts$").take();
  EXPECT_EQ(budget.test(0, regex, "model.layers.3.mlp.experts"), Outcome::Match);
  EXPECT_EQ(budget.test(0, regex, "model.layers.3.mlp.experts.1"), Outcome::None);
  EXPECT_FALSE(budget.is_out(0));
}

TEST(PatternBudget, APatternThatBacktracksWithoutEndIsOutAtOnce) {
  PatternBudget budget(2);
  const Regex hard = Regex::compile("^(([a-z]+)+)+[A-Z]$").take();
  const std::string path(60, 'a');
  EXPECT_EQ(budget.test(0, hard, path), Outcome::Limit);
  EXPECT_TRUE(budget.is_out(0));
  const uint64_t spent = budget.steps(0);
  EXPECT_EQ(budget.test(0, hard, path), Outcome::Limit);
  EXPECT_EQ(budget.steps(0), spent) << "a rule that is out costs nothing more";
  EXPECT_FALSE(budget.is_out(1));
}

// Costs are counted in steps: the same on every machine.
TEST(PatternBudget, CostsAreTheSameEveryTime) {
  const Regex regex = Regex::compile("^(a|aa)+[A-Z]").take();
  uint64_t first = 0;
  for (int run = 0; run < 3; ++run) {
    PatternBudget budget(1);
    for (size_t i = 0; i < 1000; ++i) {
      (void)budget.test(0, regex, std::string(i % 14, 'a'));
    }
    EXPECT_GT(budget.steps(0), 0u);
    if (run == 0) first = budget.steps(0);
    EXPECT_EQ(budget.steps(0), first);
  }
}

// Slow patterns that never reach the limit on one path end as well: those of one
// rule, and those of many rules together.
TEST(PatternBudget, ManyStepsInAllEndARule) {
  PatternBudget budget(1);
  const Regex slow = Regex::compile("^(a|aa)+[A-Z]").take();
  const std::string path(12, 'a');
  int64_t tests = 0;
  while (!budget.is_out(0) && tests < 1'000'000) {
    const Outcome outcome = budget.test(0, slow, path);
    EXPECT_EQ(outcome, Outcome::None);
    ++tests;
  }
  EXPECT_TRUE(budget.is_out(0));
  EXPECT_GT(tests, 100);
}

}  // namespace
}  // namespace ktx::rules

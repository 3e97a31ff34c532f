#include "lib/rules/pattern_budget.h"

namespace ktx::rules {
namespace {

constexpr uint32_t kFreeSteps = 16;
constexpr uint32_t kTries[] = {256, 4096};
// A step takes about 10 ns: 50 ms for one rule, a second or two for all.
constexpr uint64_t kStepsOfRule = 5'000'000;
constexpr uint64_t kStepsOfAll = 100'000'000;

}  // namespace

Regex::Outcome PatternBudget::test(size_t rule, const Regex& regex, std::string_view path) {
  OfRule& used = rules_[rule];
  if (used.out) return Regex::Outcome::Limit;
  Regex::Outcome outcome = tester_.test(regex, path, kFreeSteps);
  if (outcome != Regex::Outcome::Limit) return outcome;
  for (uint32_t limit : kTries) {
    used.steps += limit;
    all_steps_ += limit;
    outcome = tester_.test(regex, path, limit);
    if (outcome != Regex::Outcome::Limit) break;
  }
  const uint64_t allowed = all_steps_ > kStepsOfAll ? kStepsOfRule / 100 : kStepsOfRule;
  used.out = outcome == Regex::Outcome::Limit || used.steps > allowed;
  return outcome;
}

}  // namespace ktx::rules

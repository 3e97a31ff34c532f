#include "lib/rules/pattern_budget.h"

namespace ktx::rules {
namespace {

// Most searches end within the first; a pattern of a real file needs less than 2000
// steps on any path of any of the known models.
constexpr uint32_t kTries[] = {32, 256, 2048, 16'384};
constexpr uint64_t kStepsOfRule = 100'000'000;
constexpr uint64_t kStepsOfAll = 1'000'000'000;

}  // namespace

Regex::Outcome PatternBudget::test(size_t rule, const Regex& regex, std::string_view path) {
  OfRule& used = rules_[rule];
  if (used.out) return Regex::Outcome::Limit;
  Regex::Outcome outcome = Regex::Outcome::Limit;
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

#include "lib/passes/team_trial.h"

#include <fmt/format.h>

#include <algorithm>

namespace ktx::passes {
namespace {

constexpr const char* kNames[kDividedKinds] = {"attention", "states", "feed-forward parts",
                                               "experts", "head"};

double prompt_rate(double seconds, int64_t tokens) {
  return static_cast<double>(tokens) / seconds;
}

}  // namespace

DividedKind kind_of_unit(const ir::Module& unit) {
  if (unit.role == ir::Role::Head) return DividedKind::Head;
  if (unit.role == ir::Role::Experts) return DividedKind::Experts;
  if (ir::kind_of(unit.role) == ir::Kind::Mlp) return DividedKind::FeedForward;
  const bool states = std::holds_alternative<ir::DeltaNetInfo>(unit.info) ||
                      std::holds_alternative<ir::StateSpaceInfo>(unit.info) ||
                      std::holds_alternative<ir::ShortConvInfo>(unit.info);
  return states ? DividedKind::States : DividedKind::Attention;
}

std::string names_of(const DividedKinds& kinds) {
  std::string names;
  for (size_t i = 0; i < kDividedKinds; ++i) {
    if (kinds[i]) names += (names.empty() ? "" : ", ") + std::string(kNames[i]);
  }
  return names.empty() ? "nothing" : names;
}

std::string team_refusal(const std::vector<TeamTrial>& trials) {
  const TeamTrial *alone = nullptr, *together = nullptr;
  for (const TeamTrial& trial : trials) {
    if (trial.kinds.none()) {
      alone = &trial;
    } else if (trial.time.token > 0 &&
               (!together || trial.time.seconds() < together->time.seconds())) {
      together = &trial;
    }
  }
  if (alone == nullptr || together == nullptr || !alone->chosen) return "";
  const double there = 1 / together->time.token, here = 1 / alone->time.token;
  return fmt::format(
      "GPUs do not compute layers together: a token would be made at {:.1f} a second, without that "
      "at {:.1f}, and prompts of {} at {:.0f} and {:.0f} (predicted); `device: split` in a rule "
      "does it all the same",
      there, here, kLongPrompt, prompt_rate(together->time.long_prompt, kLongPrompt),
      prompt_rate(alone->time.long_prompt, kLongPrompt));
}

std::string team_table(const std::vector<TeamTrial>& trials) {
  if (trials.empty()) return "";
  size_t width = 0;
  for (const TeamTrial& trial : trials) width = std::max(width, names_of(trial.kinds).size());
  std::string out = fmt::format(
      "divided over GPUs, predicted (*: chosen), tokens a second\n"
      "     {:<{}}  decode  prompts of {}  of {}\n",
      "", width, kShortPrompt, kLongPrompt);
  for (const TeamTrial& trial : trials) {
    out += fmt::format("  {}  {:<{}}  {:>6.1f}  {:>14.0f}  {:>7.0f}\n", trial.chosen ? "*" : " ",
                       names_of(trial.kinds), width, 1 / trial.time.token,
                       prompt_rate(trial.time.short_prompt, kShortPrompt),
                       prompt_rate(trial.time.long_prompt, kLongPrompt));
  }
  return out;
}

}  // namespace ktx::passes

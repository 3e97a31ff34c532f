// Sets of experts on several devices, and experts that are added a layer later.
#include <fmt/format.h>

#include "lib/passes/lint/rule_check.h"
#include "lib/passes/lint/rule_report.h"
#include "lib/passes/lower/deferred_experts.h"
#include "lib/passes/rule_expert_sets.h"

namespace ktx::passes::rule_checks {

using ir::Role;

void check_expert_sets(RuleCheck& c) {
  if (c.rule.replace.experts.empty()) return;
  const rules::ExpertsOn& first = c.rule.replace.experts[0];
  for (const ir::Module* module : c.won) {
    const std::string obstacle = expert_sets_obstacle(c.rule.replace, *module);
    if (obstacle.empty()) continue;
    Diagnostic& diag = c.diags().error(
        first.loc, "R021",
        fmt::format("{} {}", module->path.empty() ? "the root" : module->path, obstacle));
    if (module->role != Role::Experts) diag.help("write `match: {kind: experts}`");
    return;
  }
}

void check_slots(RuleCheck& c) {
  if (!c.state.check.strict_numerics) return;
  for (const rules::ExpertsOn& set : c.rule.replace.experts) {
    if (!set.guests) continue;
    c.diags()
        .error(set.loc, "Q008",
               "slots make the rounding of an answer depend on what ran before it, which "
               "--strict-numerics forbids")
        .help("write how many experts stay on the GPU, {cuda:0: 32}, or leave the option out");
    return;
  }
}

void check_deferred(RuleCheck& c) {
  const auto& deferred = c.rule.replace.deferred;
  if (!deferred) return;
  for (const ir::Module* module : c.won) {
    const std::string obstacle =
        deferral_obstacle(c.state.modules, *module, c.rule.replace.deferred_experts);
    if (obstacle.empty()) continue;
    Diagnostic& diag = c.diags().error(
        deferred->loc, "R022",
        fmt::format("{} {}", module->path.empty() ? "the root" : module->path, obstacle));
    if (module->role != Role::Experts) diag.help("write `match: {kind: experts}`");
    return;
  }
  if (is_on_gpu(c.rule.replace)) {
    c.diags()
        .error(deferred->loc, "R022",
               fmt::format("experts on {} are not deferred: a GPU does not wait for them",
                           c.rule.replace.device->text))
        .help("write `device: cpu`, or remove `deferred`");
  } else if (divides_over_hosts(c.rule.replace)) {
    c.diags()
        .error(deferred->loc, "R022",
               "experts that are divided over hosts are not deferred: those of a token are added "
               "at once")
        .help("put them on one host each layer, or remove `deferred`");
  } else if (!c.rule.replace.lossy_allowed) {
    c.diags()
        .error(deferred->loc, "Q007",
               "experts that are added a layer later change the model's output, and the rule "
               "does not allow that")
        .help("add `lossy: allow` if that is intended (docs/rules.md has measurements)");
  }
}

}  // namespace ktx::passes::rule_checks

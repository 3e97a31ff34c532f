// Attaches to each module the rule that decides it (lib/rules/match.h) and copies the rule's
// values into the module's decision. A module without a rule inherits the layout of its parent;
// placement/placed_by_rules.cc reads the device. check_rules.cc and check_ops.cc check whether the
// rules make sense.
#include "lib/passes/lower/deferred_experts.h"
#include "lib/passes/pass.h"
#include "lib/passes/rule_expert_sets.h"
#include "lib/rules/device_name.h"

namespace ktx::passes {
namespace {

void apply(CompileState& state, int number, ir::Module& module) {
  const rules::Replace& replace = state.rules.rules[static_cast<size_t>(number)].replace;
  ir::Decision& decision = module.decision;
  decision.rule = number;
  if (replace.place) decision.device = rules::placed_name(state.target, *replace.place);
  if (replace.op_info) decision.op = replace.op_info->becomes;
  if (replace.layout) decision.layout = replace.layout->text;
  decision.lossy_allowed = replace.lossy_allowed;
  decision.deferred = deferred_experts(state.modules, replace, module);
  // Sets that the module cannot have are reported by check-ops.
  if (replace.experts.empty() || !expert_sets_obstacle(replace, module).empty()) return;
  for (const rules::ExpertsOn& set : replace.experts) {
    const auto place = rules::parse_device(set.device.text);
    decision.expert_sets.push_back(
        {place ? rules::placed_name(state.target, *place) : set.device.text, set.experts, set.count,
         0, set.guests});
  }
  if (decision.device.empty()) decision.device = "cpu";
}

// Whether a rule that decides an experts module leaves its weights to the rules of
// single experts: `default` does, since the container itself has none.
bool leaves_open(const rules::Rule& rule) {
  const rules::Replace& replace = rule.replace;
  if (replace.class_name) return replace.class_name->text == "default";
  return !replace.place && !replace.op_info && replace.experts.empty() && !replace.deferred;
}

// What holds for modules without a rule: each default from the last file that has it.
void apply_defaults(const CompileState& state, ir::Decision& decision) {
  const auto& files = state.rules.files;
  for (auto file = files.rbegin(); file != files.rend(); ++file) {
    const rules::Defaults& defaults = file->defaults;
    if (defaults.place && decision.device.empty()) {
      decision.device = rules::placed_name(state.target, *defaults.place);
    }
    if (defaults.layout && decision.layout.empty()) decision.layout = defaults.layout->text;
    decision.lossy_allowed = decision.lossy_allowed || defaults.lossy_allowed;
  }
}

}  // namespace

Status match_rules(CompileState& state) {
  state.matched = rules::match(state.rules, state.modules);
  const rules::MatchResult& matched = state.matched;
  for (size_t id = 0; id < state.modules.modules.size(); ++id) {
    ir::Module& module = state.modules.modules[id];
    const int rule = matched.rule_of_module[id];
    const int experts_rule = matched.rule_of_experts[id];
    if (rule >= 0) apply(state, rule, module);
    const bool open = rule < 0 || leaves_open(state.rules.rules[static_cast<size_t>(rule)]);
    if (experts_rule >= 0 && open) {
      // Experts are stacked: what holds for their linear layers holds for the stack.
      apply(state, experts_rule, module);
    } else if (rule == rules::kNotVisited) {
      // Below `recursive: false` the rule's operator loads everything itself.
      module.decision = state.modules.modules[static_cast<size_t>(module.parent)].decision;
      module.decision.expert_sets.clear();
      module.decision.deferred = 0;
    } else if (rule == rules::kNoRule) {
      apply_defaults(state, module.decision);
    }
    if (module.decision.rule < 0 && module.decision.layout.empty() && module.parent >= 0) {
      const auto parent = static_cast<size_t>(module.parent);
      module.decision.layout = state.modules.modules[parent].decision.layout;
    }
  }
  return {};
}

}  // namespace ktx::passes

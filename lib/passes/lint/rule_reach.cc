#include "lib/passes/lint/rule_reach.h"

#include <algorithm>
#include <map>

#include "lib/passes/cost/module_bytes.h"

namespace ktx::passes {
namespace {

using rules::DeviceSpec;
using rules::Rule;

// What a rule asks for that a module without weights cannot give.
enum class Ask { Nothing, Device, Op, Layout };

Ask ask_of(const Rule& rule) {
  if (rule.replace.operator_info) return Ask::Nothing;
  if (rule.replace.place) {
    return rule.replace.place->kind == DeviceSpec::Kind::Auto ? Ask::Nothing : Ask::Device;
  }
  if (rule.replace.op_info && rule.replace.op_info->becomes != "auto") return Ask::Op;
  return rule.replace.layout ? Ask::Layout : Ask::Nothing;
}

class Reach {
 public:
  explicit Reach(const CompileState& state)
      : state_(state), modules_(state.modules.modules), tally_(state.rules.rules.size()) {}

  std::vector<Unreached> run() {
    for (size_t id = 0; id < modules_.size(); ++id) count_own(id);
    for (size_t id = 0; id < modules_.size(); ++id) {
      if (!modules_[id].params.empty()) count_for_rules_above(id);
    }
    std::vector<Unreached> found;
    for (size_t i = 0; i < tally_.size(); ++i) {
      Tally& tally = tally_[i];
      const rules::RuleOutcome& outcome = state_.matched.outcomes[i];
      if (ask_of(rule(i)) == Ask::Nothing || outcome.won == 0 || tally.reached) continue;
      tally.out.rule = static_cast<int>(i);
      if (tally.out.modules == 0) {
        tally.out.single_experts = true;
        tally.out.modules = outcome.won;
        tally.out.first = outcome.first_won;
      }
      for (const auto& [taker, count] : tally.takers) {
        if (count > tally.takers[tally.out.taker]) tally.out.taker = taker;
      }
      found.push_back(tally.out);
    }
    return found;
  }

 private:
  struct Tally {
    Unreached out;
    bool reached = false;
    std::map<int, int64_t> takers;  // by rule; kNoRule: none
  };

  const Rule& rule(size_t index) const { return state_.rules.rules[index]; }

  // A module's own rule, and the one of its single experts where that decides the stack.
  void count_own(size_t id) {
    const int own = state_.matched.rule_of_module[id];
    const int applied = modules_[id].decision.rule;
    if (applied >= 0 && !modules_[id].params.empty()) {
      tally_[static_cast<size_t>(applied)].reached = true;
    }
    if (own < 0) return;
    Unreached& out = tally_[static_cast<size_t>(own)].out;
    if (out.modules++ == 0) out.first = modules_[id].path;
    if (!modules_[id].params.empty()) tally_[static_cast<size_t>(own)].reached = true;
  }

  // A module with weights, for each rule that decides a module above it.
  void count_for_rules_above(size_t id) {
    const ir::Module& module = modules_[id];
    std::vector<int> met = {state_.matched.rule_of_module[id]};
    for (ir::ModuleId at = module.parent; at >= 0; at = modules_[static_cast<size_t>(at)].parent) {
      const int above = state_.matched.rule_of_module[static_cast<size_t>(at)];
      if (above < 0 || std::count(met.begin(), met.end(), above) > 0) continue;
      met.push_back(above);
      Tally& tally = tally_[static_cast<size_t>(above)];
      ++tally.out.below;
      tally.out.below_bytes += source_bytes(module);
      ++tally.takers[std::max(met.front(), rules::kNoRule)];
      const ir::Decision& container = modules_[static_cast<size_t>(at)].decision;
      tally.reached =
          tally.reached || goes_with(module, container, ask_of(rule(static_cast<size_t>(above))));
    }
  }

  // Whether a rule's request for a container applies to a module in it.
  bool goes_with(const ir::Module& module, const ir::Decision& container, Ask ask) const {
    if (ask == Ask::Op) return module.decision.op == container.op;
    if (ask == Ask::Layout) return module.decision.layout == container.layout;
    return module.decision.device == container.device || is_open(module);
  }

  // Without a target its automatic placement is unknown.
  bool is_open(const ir::Module& module) const {
    if (!state_.check.only || state_.check.target_given) return false;
    const int number = module.decision.rule;
    if (number < 0) return false;
    const auto& place = rule(static_cast<size_t>(number)).replace.place;
    return !place || place->kind == DeviceSpec::Kind::Auto;
  }

  const CompileState& state_;
  const std::vector<ir::Module>& modules_;
  std::vector<Tally> tally_;  // by rule
};

}  // namespace

std::vector<Unreached> unreached_rules(const CompileState& state) {
  return Reach(state).run();
}

}  // namespace ktx::passes

// The checks of one rule's replacement, which the pass check-ops runs for each rule (check_ops.cc).
#pragma once

#include <fmt/format.h>

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "lib/passes/pass.h"

namespace ktx::passes {

struct RuleCheck {
  CompileState& state;
  const rules::Rule& rule;
  std::vector<const ir::Module*> won;  // the modules that the rule decides
  std::set<std::string>& said;         // about all rules

  DiagSink& diags() const { return *state.diags; }
  bool for_ktransformers() const { return state.check.dialect == rules::Dialect::KTransformers; }
  std::string file() const { return state.rules.file_of(rule).path; }
  // True the first time for this file: such remarks are made once.
  bool first_time(std::string_view what) {
    return said.insert(fmt::format("{}/{}", rule.file, what)).second;
  }
};

namespace rule_checks {

void check_device(RuleCheck& c);
void check_fit(RuleCheck& c);
void check_expert_sets(RuleCheck& c);
void check_slots(RuleCheck& c);
void check_deferred(RuleCheck& c);
void check_config(RuleCheck& c);
void check_rope(RuleCheck& c);
void check_routing(RuleCheck& c);
void check_backend(RuleCheck& c);
void check_layout(RuleCheck& c);
void check_weights(RuleCheck& c);
void check_kwargs(RuleCheck& c);
void note_op(RuleCheck& c);

}  // namespace rule_checks

}  // namespace ktx::passes

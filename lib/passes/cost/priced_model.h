// What a placement is priced for: a model with its rules, a machine, and the requested run.
// Refers to its parts of the compiler's state; the devices in the modules do not count.
#pragma once

#include <vector>

#include "lib/passes/pass.h"
#include "lib/passes/placement.h"

namespace ktx::passes {

struct PricedModel {
  const ir::ModuleGraph& modules;
  const target::Target& target;
  const rules::RuleSet& rules;
  const plan::ExpertProfile* profile;  // null: experts are chosen all alike
  CheckOptions check;
  program::Preferences prefer;
  StreamChoice streams;  // to begin with
  std::vector<Tap> taps;
  bool bf16_inputs;

  explicit PricedModel(const CompileState& state)
      : modules(state.modules),
        target(state.target),
        rules(state.rules),
        profile(state.expert_profile.get()),
        check(state.check),
        prefer(state.prefer),
        streams(streams_of(state)),
        taps(state.taps),
        bf16_inputs(state.bf16_inputs) {}
};

}  // namespace ktx::passes

// Puts steps in the order of their stages, so that those that may run side by side
// stand together:
//
//   router, choose, group, gate_up, down, shared gate, shared up, glu, ...
//   becomes   router, shared gate, shared up | choose, glu | group, gate_up, ...
//
// What a step reads and writes, and the order in which sums grow, stay as they were
// (lib/ops/step_stages.h).
#include "lib/passes/pass.h"
#include "lib/program/program.h"
#include "lib/program/stages.h"

namespace ktx::passes {

Status group_steps(CompileState& state) {
  std::vector<program::Step> ordered;
  ordered.reserve(state.program.steps.size());
  const auto move = [&](int32_t index) {
    ordered.push_back(std::move(state.program.steps[index]));
  };
  for (const Stage& stage : program::stages_of(state.program)) {
    for (int32_t index : stage.prelude) move(index);
    for (const auto& part : stage.parts) {
      for (int32_t index : part) move(index);
    }
  }
  state.program.steps = std::move(ordered);
  return {};
}

}  // namespace ktx::passes

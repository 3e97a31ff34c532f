// Finds the groups of steps that a GPU may compute together (lib/launches/find_fused.h). Whether
// one does, and for how many tokens, choose-launches says.
#include "lib/launches/find_fused.h"
#include "lib/passes/pass.h"
#include "lib/steps/graph_step_list.h"

namespace ktx::passes {

Status fuse_steps(CompileState& state) {
  const launches::StepList list = steps::step_list(state.steps);
  const launches::Uses uses(list);
  state.steps.groups.clear();
  state.steps.launches.clear();
  for (const launches::Part& part : state.steps.parts) {
    if (part.kind != launches::Part::Kind::Gpu) continue;
    for (launches::FusedGroup& group :
         launches::find_fused(list, uses, part.first_step, part.step_count)) {
      state.steps.groups.push_back(std::move(group));
    }
  }
  return {};
}

}  // namespace ktx::passes

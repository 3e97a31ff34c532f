// Finds the groups of steps that a GPU may compute together (lib/program/find_fused.h). Whether
// one does, and for how many tokens, choose-launches says.
#include "lib/passes/pass.h"
#include "lib/program/find_fused.h"
#include "lib/program/program.h"

namespace ktx::passes {

Status fuse_steps(CompileState& state) {
  const program::Uses uses(state.program);
  state.program.groups.clear();
  state.program.launches.clear();
  for (const program::Part& part : state.program.parts) {
    if (part.kind != program::Part::Kind::Gpu) continue;
    for (program::FusedGroup& group :
         program::find_fused(state.program, uses, part.first_step, part.step_count)) {
      state.program.groups.push_back(std::move(group));
    }
  }
  return {};
}

}  // namespace ktx::passes

// Cuts the steps into parts: stretches that the host hands to one device each
// (lib/launches/parts.h).
#include "lib/launches/parts.h"

#include "lib/passes/pass.h"
#include "lib/steps/graph_step_list.h"

namespace ktx::passes {

Status cut_parts(CompileState& state) {
  state.steps.parts = launches::cut_parts(steps::step_list(state.steps));
  state.steps.groups.clear();
  state.steps.launches.clear();
  return {};
}

}  // namespace ktx::passes

// Puts every module on a device: finds the placement and writes it into the modules, and how
// experts are streamed into the state.
//
// A plan is for the CPU alone if the target has no GPU; the target is that of --target, else
// the machine at hand.
#include "lib/passes/placement/find_placement.h"

namespace ktx::passes {

Status place_devices(CompileState& state) {
  FoundPlacement found = find_placement(PricedModel(state), *state.diags);
  const StreamChoice& streams = found.placement.streams;
  write_placement(found.placement, state.modules);
  state.stream_slots = streams.way.slots;
  state.check.shape.step_tokens = streams.way.chunk;
  state.prefer.stream_tokens = streams.tokens;
  state.prefer.joint_tokens = streams.joint;
  state.stream_trials = std::move(found.trials);
  state.team_trials = std::move(found.teams);
  return {};
}

}  // namespace ktx::passes

// Puts every module on a device: writes the placement that place_model.h finds into the modules,
// and how experts are streamed into the state.
//
// A plan is for the CPU alone if the target has no GPU; the target is that of --target, else
// the machine at hand.
#include "lib/passes/placement/place_model.h"

namespace ktx::passes {

Status place_devices(CompileState& state) {
  FoundPlacement found = place_model(PricedModel(state), *state.diags);
  const StreamChoice& streams = found.placement.streams;
  write_placement(found.placement, state.modules);
  state.stream_slots = streams.way.slots;
  state.check.shape.step_tokens = streams.way.chunk;
  state.prefer.stream_tokens = streams.tokens;
  state.prefer.joint_tokens = streams.joint;
  state.stream_trials = std::move(found.trials);
  return {};
}

}  // namespace ktx::passes

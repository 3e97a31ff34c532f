// Puts every module on a device: finds the placement (find_placement.h), takes from it what cannot
// run, and writes it into the modules, and how experts are streamed into the state.
//
// A plan is for the CPU alone if the target has no GPU; the target is that of --target, else
// the machine at hand.
#include "lib/passes/cost/host_links.h"
#include "lib/passes/placement/place_model.h"
#include "lib/passes/placement/runnable_placement.h"
#include "lib/passes/placement/stream_experts.h"

namespace ktx::passes {

FoundPlacement place_model(const PricedModel& model, DiagSink& diags) {
  FoundPlacement found;
  const bool several = !model.target.gpus.empty() || has_hosts(model.target);
  if (model.check.only) {
    found = find_placement(model);
    if (model.check.target_given) keep_states(model, found.placement, diags);
  } else if (several) {
    found = find_placement(model);
    keep_runnable(model, found.placement, diags);
  } else {
    found.placement = all_on_cpu(model, diags);
  }
  const std::string note = settle_streams(model, found.placement, found.trials);
  if (!note.empty()) diags.note({}, "", note);
  const std::string refusal = team_refusal(found.teams);
  if (!refusal.empty() && model.check.dialect == rules::Dialect::Ktx) diags.note({}, "", refusal);
  return found;
}

Status place_devices(CompileState& state) {
  FoundPlacement found = place_model(PricedModel(state), *state.diags);
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

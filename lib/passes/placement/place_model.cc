#include "lib/passes/placement/place_model.h"

#include "lib/passes/cost/host_links.h"
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
  return found;
}

}  // namespace ktx::passes

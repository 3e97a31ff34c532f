// The placement of a model: what find_placement.h finds, less what cannot run
// (runnable_placement.h), with the best way to stream experts that fits (stream_experts.h).
#pragma once

#include "lib/passes/placement/find_placement.h"

namespace ktx::passes {

FoundPlacement place_model(const PricedModel& model, DiagSink& diags);

}  // namespace ktx::passes

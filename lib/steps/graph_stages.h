// The stages of a step graph (lib/ops/step_stages.h), before memory is shared:
// every value has its own.
#pragma once

#include <vector>

#include "lib/ops/step_stages.h"
#include "lib/steps/step_graph.h"

namespace ktx::steps {

std::vector<Stage> stages_of(const StepGraph& graph);

}  // namespace ktx::steps

// Converts the step graph to the form that lib/launches works on.
#pragma once

#include "lib/launches/step_list.h"
#include "lib/steps/step_graph.h"

namespace ktx::steps {

// The graph has passed its verifier. The last step's output is the logits.
launches::StepList step_list(const StepGraph& graph);

}  // namespace ktx::steps

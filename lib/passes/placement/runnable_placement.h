// For execution: what cannot run where a rule or the search has put it goes to the CPU of that
// host. There is one warning for each device, and one for each reason, that a rule has asked for.
#pragma once

#include "lib/passes/cost/priced_model.h"

namespace ktx::passes {

// Whether GPUs have kernels for the module's steps without weights.
bool gpu_kernels_compute(const ir::Module& module);
// For a machine without GPUs: all on its CPU.
Placement all_on_cpu(const PricedModel& model, DiagSink& diags);
// Steps with a state that no GPU kernel computes; keep_runnable() looks at them too.
void keep_states(const PricedModel& model, Placement& placement, DiagSink& diags);
// Devices that the target lacks, and what no GPU kernel computes.
void keep_runnable(const PricedModel& model, Placement& placement, DiagSink& diags);

}  // namespace ktx::passes

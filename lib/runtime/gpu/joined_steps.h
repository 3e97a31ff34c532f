// Chooses which steps of a GPU are launched together, by the shape of the pass:
//
//   one token    fusions (fusions.h), and runs of them and of other steps in one launch
//   few tokens   fusions that the GPU takes for so many
//   many tokens  the same
//
// Fills GpuDevice's joined, runs and one_token_runs.
#pragma once

#include <functional>

#include "lib/runtime/gpu/gpu_state.h"

namespace ktx::runtime {

// After all steps are bound. `context`: what binding the step with this record may look at.
Status join_steps(GpuState& state, size_t device,
                  const std::function<GpuBindContext(uint32_t step)>& context);

}  // namespace ktx::runtime

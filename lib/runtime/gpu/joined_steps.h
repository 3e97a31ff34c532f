// Chooses which steps of a GPU are launched together, by the shape of the pass:
//
//   one token                 the fusions (fusions.h) that the GPU has a kernel for
//   few tokens, many tokens   the same, by kernels of their own
//
// Fills GpuDevice::joined.
#pragma once

#include <functional>

#include "lib/runtime/gpu/gpu_state.h"

namespace ktx::runtime {

// After all steps are bound. `context`: what binding the step with this record may look at.
Status join_steps(GpuState& state, size_t device,
                  const std::function<GpuBindContext(uint32_t step)>& context);

}  // namespace ktx::runtime

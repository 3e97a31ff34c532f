// Runs a part of a plan and waits after every step: to time it, or to inspect its results.
// Slow; used only if GpuState::steps_are_watched().
#pragma once

#include "lib/runtime/engine/batch.h"
#include "lib/runtime/gpu/gpu_state.h"

namespace ktx::runtime {

// Adds to state.times, calls setup.on_result, and fails at the first result that is not finite
// where setup.check_finite asks for it; the message names the step's module.
Status run_watched(GpuState& state, const Part& part, const Batch& batch, const GpuShape& shape);

}  // namespace ktx::runtime

// Queues one part of a plan on its GPU: steps, and copies from and to other devices.
#pragma once

#include <cstdint>

#include "lib/runtime/gpu/gpu_state.h"

namespace ktx::runtime {

// All steps of the part. Neighbouring small transfers between the GPU and the host go in one
// launch. Used for a run and to capture its graph.
Status queue_part(GpuState& state, const Part& part, const GpuShape& shape);

// One step by itself, or the fusion that runs at its place; nothing where another step does it
// too.
Status queue_step(GpuState& state, const Part& part, uint32_t index, const GpuShape& shape);

}  // namespace ktx::runtime

// Prepares the GPUs of a plan: opens them, checks them against the plan's needs, allocates
// memory, binds steps, and uploads weights while graphs are captured.
#pragma once

#include <memory>

#include "lib/runtime/gpu/gpu_state.h"

namespace ktx::runtime {

// Everything but the setup itself must outlive the state. Fails before anything is uploaded when
// a GPU is missing, too old or too small.
Result<std::unique_ptr<GpuState>> start_gpus(const BackendSetup& setup, const BoundParts& parts,
                                             const HostArena& host);

}  // namespace ktx::runtime

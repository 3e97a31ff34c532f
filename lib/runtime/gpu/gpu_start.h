// Makes the GPUs of a plan ready: opened and checked against the plan's needs, memory taken,
// steps bound, weights uploaded while graphs are captured.
#pragma once

#include <memory>

#include "lib/runtime/gpu/gpu_state.h"

namespace ktx::runtime {

// All but `setup` must outlive the state. Fails before anything is uploaded when a GPU is
// missing, too old or too small.
Result<std::unique_ptr<GpuState>> start_gpus(const plan::PlanView& plan, KvCache& kv,
                                             ThreadPool& pool, const GpuSetup& setup);

}  // namespace ktx::runtime

// Checks that a GPU can hold its share of the plan, from the plan's own numbers, before
// anything is uploaded.
#pragma once

#include <cstdint>
#include <string>

#include "lib/plan/device_memory.h"
#include "lib/runtime/gpu/gpu.h"
#include "lib/support/result.h"

namespace ktx::runtime {

// Fails with a table and possible remedies. `kv_blocks` is what the budget leaves.
Status check_gpu_fit(const plan::DeviceMemory& needs, const GpuFacts& gpu,
                     const plan::RunShape& shape, const plan::KvBlocks& kv_blocks);

// Fails when the card's generation is older than the kernels of this build.
Status check_gpu_generation(const std::string& device, const GpuFacts& gpu);

}  // namespace ktx::runtime

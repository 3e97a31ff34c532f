// Measures steps of a GPU inside a CUDA graph, without the host's overhead: for `ktx-run bench
// --kernels`.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "lib/runtime/engine/step_stats.h"
#include "lib/runtime/gpu/gpu_state.h"

namespace ktx::runtime {

// The mean over `steps` (records of the plan, all on the part's GPU) in turn, at the shape of the
// last pass. Overwrites values: the next pass must not rely on them.
Result<KernelTime> time_steps(GpuState& state, const Part& part, std::span<const uint32_t> steps);

// The steps that `step` of a GPU stands for at the shape of the last pass: itself, all of a
// fused op that runs at its place, or none when another stands for it.
std::vector<uint32_t> steps_of_launch(const GpuState& state, uint32_t step);

}  // namespace ktx::runtime

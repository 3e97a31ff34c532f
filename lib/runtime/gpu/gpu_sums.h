// Sums over several GPUs (all_reduce): by kernels that read each other's memory. Where GPUs do not
// reach that, those of few tokens go through the host's memory, by kernels too, and larger ones are
// copied. Each GPU adds the same numbers in the same order, so that all have the same bits.
#pragma once

#include <cstdint>

#include "lib/runtime/gpu/gpu_state.h"

namespace ktx::runtime {

// Connects the GPUs whose parts of the plan are sums, and notes where they do not reach each other.
Status join_team(GpuState& state);

// Bytes of workspace that copies of parts take in a pass of this shape.
int64_t sum_bytes(const GpuState& state, const GpuShape& shape);

// Whether kernels make the sums of a pass; else copies, between which the host queues.
bool sums_by_kernels(const GpuState& state, const GpuShape& shape);

// This GPU's share of the sum.
Status queue_sum(GpuState& state, const Part& part, const program::Step& step,
                 const GpuShape& shape);

}  // namespace ktx::runtime

// Bytes of weights that a step reads, and of the states of one sequence (of delta nets) that it
// reads and writes, for GB/s.
#pragma once

#include <cstdint>

#include "lib/plan/plan_reader.h"

namespace ktx::runtime {

// For a step of `tokens` tokens. Of experts, those of different tokens are taken to
// differ until all are read.
int64_t step_weight_bytes(const plan::PlanView& plan, const plan::StepRecord& step, int64_t tokens);

}  // namespace ktx::runtime

// Bytes of weights that a step reads, and of the states of one sequence (of delta nets) that it
// reads and writes, for GB/s.
#pragma once

#include <cstdint>

#include "lib/program/program.h"

namespace ktx::runtime {

// The bytes for a step of `tokens` tokens. Different tokens are taken to choose different
// experts, until all are read.
int64_t step_weight_bytes(const program::Program& program, const program::Step& step,
                          int64_t tokens);

}  // namespace ktx::runtime

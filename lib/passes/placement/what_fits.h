// What would make an oversized placement fit: for the messages of check-memory. Each remedy was
// placed and estimated, and fits the whole machine.
//
//   without moe.yaml it fits: cuda:0 21.9 GiB of 24.00 GiB, cpu 12.2 GiB of 125.70 GiB
//   the experts of layers 17 to 27 on cpu (11 of 28, 12.55 GiB) make it fit: cuda:0 23.2 GiB of ...
#pragma once

#include <string>
#include <vector>

#include "lib/passes/cost/estimate.h"
#include "lib/passes/pass.h"

namespace ktx::passes {

// The rules left out, where there are any: "" where it does not fit so, or the machine is not
// known.
std::string fits_without_rules(const CompileState& state);

// Experts of as few layers as are enough, else whole layers, on another device than `device`, which
// is too small; "" where none of this is enough.
std::string fits_with_moves(const CompileState& state, const MemoryFormulas& formulas,
                            const std::string& device);

}  // namespace ktx::passes

// The int8 multiply-adds that a core can do: the ceiling of products with quantised
// weights and int8 activations, which `ktx-run bench --steps` compares steps with.
//
// Only registers are used: no load, no store, enough sums side by side to hide the
// latency of the widest dot product that products of this instruction set use.
#pragma once

#include <cstdint>

#include "lib/target/isa.h"

namespace ktx::kernels {

// Does `rounds` rounds and returns the operations done, two per multiply-add. `sink`
// gets a number that depends on all of them.
using Int8PeakFn = int64_t (*)(int64_t rounds, int32_t* sink);
Int8PeakFn find_int8_peak(Isa isa);

}  // namespace ktx::kernels

// The next best change of a placement: the routed experts of which more layers could live on a GPU,
// what memory that takes, and what it would gain.
//
//   cuda:0 has 2.10 GiB left for 6 more layers of experts, from model.layers.14.mlp.experts on:
//   decode +11 %
//   with 1.32 GiB more, cuda:0 would hold 4 more layers of experts, from ...: decode +9 %
#pragma once

#include <string>

#include "lib/passes/cost/estimate.h"
#include "lib/passes/pass.h"

namespace ktx::passes {

// A line, or "" where no experts are left on the CPU beside a GPU with known memory. `estimate`: of
// estimate_of().
std::string next_best_move(const CompileState& state, const Estimate& estimate);

}  // namespace ktx::passes

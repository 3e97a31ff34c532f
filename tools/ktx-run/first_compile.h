// Replaces the GGUFs on a command line with plans, which ktx-compile makes when a model is run for
// the first time, and which are kept in the cache of plans (lib/plan_cache/plan_cache.h).
//
//   ktx-run chat model.gguf
//   compiling model.gguf (17.3 GiB); the plan is kept for the next time (ktx-run plans)
//   [#######...........] packing 284.00 MiB of 643.75 MiB, 505.57 MiB/s, 1 s left
//
// The recipe of a plan is what decides its bytes beside the model: the options of the compiler with
// the content of the files that they name, JSON files beside the GGUF, and the machine where it has
// GPUs. A plan for the CPU serves any context, so that --ctx makes none of its own there.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lib/plan_cache/plan_cache.h"
#include "tools/ktx-run/options.h"

namespace ktx::tools {

// An exit status where there is nothing to run; what was wrong stands on stderr. The plans stay in
// the cache as long as `kept` lives.
std::optional<int> compile_models(Options& options, std::vector<plan_cache::KeptPlan>& kept);

// ktx-compile, of this version.
Result<std::string> find_compiler();

}  // namespace ktx::tools

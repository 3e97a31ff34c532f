// --quant of several names: what files of these names would take of a machine, side by side.
#pragma once

#include <string>

#include "lib/passes/pass.h"
#include "lib/support/result.h"
#include "tools/ktx-compile/options.h"

namespace ktx::tools {

// A row for each, its placement, memory and speed as --estimate has them. `state` is that of the
// config, placed with any of the types.
Result<std::string> compare_quants(const Options& options, const passes::CompileState& state);

}  // namespace ktx::tools

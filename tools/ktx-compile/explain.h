// --explain PATH: why a module is on its device, what it consists of, and which kernels run it.
#pragma once

#include <string>

#include "lib/passes/pass.h"
#include "lib/support/result.h"

namespace ktx::tools {

// Fails where there is no module of this path; the message names the nearest. `steps`: the
// model's, with launches; null where it cannot be lowered.
Result<std::string> explain_module(const passes::CompileState& state, const program::Program* steps,
                                   const std::string& path);

}  // namespace ktx::tools

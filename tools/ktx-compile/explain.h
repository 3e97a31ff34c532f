// --explain PATH: why a module is on its device and what it consists of.
#pragma once

#include <string>

#include "lib/passes/pass.h"
#include "lib/support/result.h"

namespace ktx::tools {

// Fails where there is no module of this path; the message names the nearest.
Result<std::string> explain_module(const passes::CompileState& state, const std::string& path);

}  // namespace ktx::tools

// --explain PATH: why a module is where and what it is.
#pragma once

#include <string>

#include "lib/passes/pass.h"

namespace ktx::tools {

std::string explain_module(const passes::CompileState& state, const std::string& path);

}  // namespace ktx::tools

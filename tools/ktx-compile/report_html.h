// --report FILE: one HTML page that shows a placement, without network or scripts.
#pragma once

#include <string>

#include "lib/passes/pass.h"

namespace ktx::tools {

// `steps`: the model's, with launches; null where it cannot be lowered.
std::string report_html(const passes::CompileState& state, const program::Program* steps);

}  // namespace ktx::tools

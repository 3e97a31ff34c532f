// --report FILE: one HTML page that shows a placement, without network or scripts.
#pragma once

#include <string>

#include "lib/passes/pass.h"

namespace ktx::tools {

std::string report_html(const passes::CompileState& state);

}  // namespace ktx::tools

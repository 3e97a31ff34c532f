// --report FILE: one page that shows a placement; needs no network and no script.
#pragma once

#include <string>

#include "lib/passes/pass.h"

namespace ktx::tools {

std::string report_html(const passes::CompileState& state);

}  // namespace ktx::tools

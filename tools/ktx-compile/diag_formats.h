// Diagnostics as JSON, in ktx's own form. SARIF: sarif.h.
#pragma once

#include <string>

#include "lib/support/diag.h"

namespace ktx::tools {

// `coverage` is the JSON of coverage_json, or "".
std::string to_json(const DiagSink& sink, const std::string& coverage);

}  // namespace ktx::tools

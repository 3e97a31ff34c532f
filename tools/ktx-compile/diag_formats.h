// Diagnostics for programs: JSON of our own, and SARIF 2.1.0 for code review.
#pragma once

#include <string>

#include "lib/support/diag.h"

namespace ktx::tools {

// `coverage` is the JSON of coverage_json, or "".
std::string to_json(const DiagSink& sink, const std::string& coverage);
std::string to_sarif(const DiagSink& sink);

}  // namespace ktx::tools

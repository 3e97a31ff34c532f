// ktx-compile --check: checks rules and a model as far as possible without reading weights.
#pragma once

#include "tools/ktx-compile/options.h"

namespace ktx::tools {

// Exit status: 0 clean or with warnings, 1 errors, 3 warnings under --strict.
int run_check(const Options& options);

// --explain-code and --print-rules-schema: tables, no model. Exit status.
int run_explain_code(const Options& options);

}  // namespace ktx::tools

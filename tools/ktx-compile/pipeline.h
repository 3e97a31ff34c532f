// From a GGUF to a plan, top to bottom (docs/architecture.md).
#pragma once

#include "tools/ktx-compile/options.h"

namespace ktx::tools {

// Diagnostics and progress on stderr, --emit on stdout. Returns the exit status.
int run_compile(const Options& options);

}  // namespace ktx::tools

// The walk from a GGUF to a plan (docs/architecture.md), top to bottom.
#pragma once

#include "tools/ktx-compile/options.h"

namespace ktx::tools {

// Diagnostics and progress on stderr, --emit on stdout. Returns the exit status.
int run_compile(const Options& options);

}  // namespace ktx::tools

// ktx-compile GRAPH.ktxir: reads a graph in its text form (docs/ir.md) instead of a model, runs
// the passes of --passes on it, and prints it as text again.
//
//   ktx-compile model.gguf --emit=step-ir --stop-after=lower-to-steps > graph.ktxir
//   ktx-compile graph.ktxir --passes=insert-transfers,fold-residuals
//
// The graph must be in the state that the first of these passes expects. Without --passes it is
// only parsed, verified and printed. Rule files need match-rules as the first pass; rule
// numbers in the text are dropped. --target describes the machine for the passes; without it
// they have none.
#pragma once

#include "tools/ktx-compile/options.h"

namespace ktx::tools {

// The exit status. The resulting graph goes to stdout: the one of --emit, else the level that
// was reached.
int run_graph_text(const Options& options);

}  // namespace ktx::tools

// ktx-compile GRAPH.ktxir: a graph in its text form (docs/ir.md) instead of a model, through the
// passes that --passes names, and back to text.
//
//   ktx-compile model.gguf --emit=step-ir --stop-after=lower-to-steps > graph.ktxir
//   ktx-compile graph.ktxir --passes=insert-transfers,quantize-activations
//
// The graph is taken to be as far as the first of these passes needs it. Without --passes it is
// only read, verified and printed. Rule files need match-rules as the first pass; numbers of rules
// in the text are dropped. --target is the machine of the passes; without it they know of none.
#pragma once

#include "tools/ktx-compile/options.h"

namespace ktx::tools {

// The exit status. The resulting graph goes to stdout: the one of --emit, else the level that
// was reached.
int run_graph_text(const Options& options);

}  // namespace ktx::tools

// The adapters of --merge, and whether the rules let them be merged.
//
//   auto merge = KTX_TRY(read_merge(options, source, graph));
//   ... the passes ...
//   KTX_TRY(check_consent(*merge, options, state.modules));
#pragma once

#include <memory>

#include "lib/input/model_source.h"
#include "lib/ir/module_graph.h"
#include "lib/lora/merge.h"
#include "lib/support/result.h"
#include "tools/ktx-compile/options.h"

namespace ktx::tools {

// Null where none is given. Checked against the model's tensors.
Result<std::unique_ptr<const lora::Merge>> read_merge(const Options& options,
                                                      const input::ModelSource& source,
                                                      const ir::ModuleGraph& graph);

// Fails where weights would be rounded that neither --lossy nor `lossy: allow` of the rule of their
// module lets be. Weights in F32 are not rounded. Behind match-rules.
Status check_consent(const lora::Merge& merge, const Options& options,
                     const ir::ModuleGraph& graph);

}  // namespace ktx::tools

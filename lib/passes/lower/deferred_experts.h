// Expert deferral, after KTransformers (Chen et al., SOSP 2025): of a token's experts on the CPU
// those with the smallest weights are computed while the GPU goes on with the next layer, and
// added one layer with experts later. It changes the model's output, so it is only done by a
// rule with `lossy: allow` (docs/rules.md).
//
//   layer 7   router: 8 experts, best first    x += experts of ranks 0 to 4
//   layer 8   attention on the GPU, beside it experts of ranks 5 to 7 of layer 7 on the CPU
//             router                           x += experts of ranks 0 to 4, x += those of layer 7
//
// The last layer with experts defers none, and experts on a GPU are never deferred.
#pragma once

#include <string>

#include "lib/ir/module_graph.h"
#include "lib/passes/placement.h"
#include "lib/rules/rule.h"

namespace ktx::passes {

// Why so many of the module's experts cannot be deferred: "chooses 8 experts for a token"; "": they
// can.
std::string deferral_obstacle(const ir::ModuleGraph& modules, const ir::Module& module,
                              int32_t deferred);

// What the rule defers of the module; 0 where it does not say `lossy: allow`, puts the module on a
// GPU, or there is an obstacle, all of which check-ops reports.
int32_t deferred_experts(const ir::ModuleGraph& modules, const rules::Replace& replace,
                         const ir::Module& module);
// How many of a token's experts the steps of a module in this place defer: 0 in the last layer with
// experts, and where all are on GPUs.
int32_t deferred_steps(const ir::ModuleGraph& modules, const ir::Module& experts,
                       const ModulePlace& place);
// "3 of a token's 8 experts are added a layer later, in 47 layers"; "": none is.
std::string deferral_text(const ir::ModuleGraph& modules, const Placement& placement);

// Whether the rule divides the experts over several hosts, which add them up at once.
bool divides_over_hosts(const rules::Replace& replace);
// Whether the rule says that all of the module is on a GPU.
bool is_on_gpu(const rules::Replace& replace);

}  // namespace ktx::passes

// Which parts of a layer several GPUs can compute together, each some of the heads or of the
// columns (split_steps.cc).
#pragma once

#include <cstddef>

#include "lib/ir/module_graph.h"

namespace ktx::passes {

// The attention, feed-forward part or experts that the module is, or is in; null: none, as norms
// and routers.
const ir::Module* unit_of(const ir::ModuleGraph& modules, const ir::Module& module);

// Whether `gpus` GPUs can each compute an equal part of the unit: heads and KV heads of
// grouped-query attention, columns of a feed-forward part, whole blocks of the weights that are cut
// by columns. Not where a norm goes over all heads, or where layers share keys.
bool can_divide(const ir::ModuleGraph& modules, const ir::Module& unit, size_t gpus);

}  // namespace ktx::passes

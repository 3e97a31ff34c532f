// Modules that rules put on several GPUs together (`device: split`, `cuda:0+1`).
#pragma once

#include <span>

#include "lib/passes/cost/memory_formulas.h"
#include "lib/passes/cost/priced_model.h"
#include "lib/passes/placement.h"
#include "lib/passes/placement/host_gpus.h"

namespace ktx::passes {

// Where such a module goes: attention and feed-forward parts that can be divided, and what stands
// between them, to all `gpus`; experts in equal shares to each; what else a layer has to the first.
// Outside of layers the embedding goes to the CPU, the rest to the first GPU. `gpus` is not empty.
ModulePlace split_over_gpus(const ir::ModuleGraph& modules, const ir::Module& module,
                            std::span<const DeviceId> gpus);

// All of the host's open modules so, where its GPUs reach each other's memory and hold them, and
// where that is predicted to be faster than `placement`; false: `placement` stays as it is.
bool split_where_faster(const PricedModel& model, const MemoryFormulas& formulas,
                        const HostGpus& host, Placement& placement);

}  // namespace ktx::passes

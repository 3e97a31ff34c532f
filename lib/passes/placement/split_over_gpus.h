// Modules that rules put on several GPUs together (`device: split`, `cuda:0+1`).
#pragma once

#include <span>

#include "lib/passes/cost/priced_model.h"
#include "lib/passes/placement.h"

namespace ktx::passes {

// Where such a module goes: attention and feed-forward parts that can be divided, and what stands
// between them, to all `gpus`; experts in equal shares to each; what else a layer has to the first.
// Outside of layers the embedding goes to the CPU, the rest to the first GPU. `gpus` is not empty.
ModulePlace split_over_gpus(const ir::ModuleGraph& modules, const ir::Module& module,
                            std::span<const DeviceId> gpus);

}  // namespace ktx::passes

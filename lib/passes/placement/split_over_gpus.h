// Modules that several GPUs compute together: those that rules put there (`device: split`,
// `cuda:0+1`), or all where that is faster.
#pragma once

#include <array>
#include <span>
#include <string_view>

#include "lib/passes/cost/memory_formulas.h"
#include "lib/passes/cost/priced_model.h"
#include "lib/passes/placement.h"
#include "lib/passes/placement/host_gpus.h"
#include "lib/passes/team_trial.h"

namespace ktx::passes {

// Where such a module goes: what can be divided, of these kinds, and what stands between, to all
// `gpus`; experts in equal shares to each; what else a layer has to the first. Outside of layers
// the head is divided, its norm is on all, the embedding goes to the CPU, the rest to the first
// GPU. `gpus` is not empty.
ModulePlace split_over_gpus(const ir::ModuleGraph& modules, const ir::Module& module,
                            std::span<const DeviceId> gpus, const DividedKinds& kinds);

// All of the host's open modules so, where its GPUs can add up what they have and hold them, and
// where that is predicted to be faster than `placement`: of the kinds that the model has those
// without which it would be slower. False: `placement` stays as it is. `trials`: what was compared.
bool split_where_faster(const PricedModel& model, const MemoryFormulas& formulas,
                        const HostGpus& host, Placement& placement, std::vector<TeamTrial>& trials);

}  // namespace ktx::passes

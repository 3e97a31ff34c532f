// The steps of a placement by bytes on the GPUs of a host: all modules on as few GPUs as hold them;
// else as many layers as fit, in equal shares, without experts and embedding; then experts and the
// embedding, as far as they fit.
#pragma once

#include <cstdint>
#include <map>

#include "lib/passes/cost/estimate.h"
#include "lib/passes/cost/memory_formulas.h"
#include "lib/passes/placement/host_gpus.h"

namespace ktx::passes {

using Room = std::map<DeviceId, uint64_t>;

// What the GPUs of the memory have left, and need no more where experts come.
Room room_of(const PricedModel& model, const MemoryFormulas& formulas, const Estimate& memory,
             const Placement& placement);

// Whether the GPUs of a host hold what is on them.
bool fits(const PricedModel& model, const MemoryFormulas& formulas, const Placement& placement,
          const HostGpus& host);

// Devices take turns, so that more GPUs than hold the model make nothing faster: each one is a
// hand-over. Puts all open modules on the fewest of the fastest ones, where no rule has used a GPU;
// false, and the placement as it was, where that takes all GPUs.
bool fit_on_fewer(const PricedModel& model, const MemoryFormulas& formulas, const HostGpus& host,
                  Placement& placement);

// All but experts and the embedding first: they are read for every token.
void place_early(const PricedModel& model, const HostGpus& host, Placement& placement);
void take_late_to_cpu(const PricedModel& model, const HostGpus& host, Placement& placement);

// Whole layers go to the CPU, from the last on.
void drop_until_fits(const PricedModel& model, const MemoryFormulas& formulas, const HostGpus& host,
                     Placement& placement);

// Experts and the embedding, layer by layer, or of all layers the most used experts.
void fill_with_experts(const PricedModel& model, const MemoryFormulas& formulas,
                       const HostGpus& host, bool by_use, Placement& placement);

}  // namespace ktx::passes

// Divides the routed experts of each layer over the hosts of a target:
//
//   layers 0..28   attention on a, experts 0, 2, 4 ... on a and 1, 3, 5 ... on b
//   layers 29..57  attention on b, the same
//
// Hosts then read a token's experts at the same time, for two messages a host and layer. It is done
// where the predicted time of an answer and two prompts (price.h) is less than with
// whole layers on each host, and the memory of all hosts holds it.
#pragma once

#include <cstdint>
#include <vector>

#include "lib/passes/cost/memory_formulas.h"
#include "lib/passes/cost/priced_model.h"
#include "lib/plan/expert_profile.h"

namespace ktx::passes {

// `open`: modules that no rule has placed; all have their host (spread_over_hosts.h).
void divide_experts(const PricedModel& model, const MemoryFormulas& formulas,
                    const std::vector<const ir::Module*>& open, Placement& placement);

// Gives each host its share of the experts, with a profile of their activations: of these. Host 0
// is the module's own, which gets one at least.
std::vector<std::vector<int32_t>> deal_experts(const plan::ExpertProfile* profile, int32_t layer,
                                               int32_t experts, const std::vector<double>& shares);

}  // namespace ktx::passes

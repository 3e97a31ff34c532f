// The devices that rules set for modules. A module without a rule goes with its nearest ancestor
// that has a device, else with the attention of its layer:
//
//   layers.3.self_attn          cuda:1   by a rule
//   layers.3.self_attn.kv_b_proj         -> cuda:1, as self_attn
//   layers.3.input_layernorm             -> cuda:1, as the layer's attention
//   model.norm                           -> as the last layer
#pragma once

#include <vector>

#include "lib/passes/cost/priced_model.h"

namespace ktx::passes {

// What rules say; all else is on the CPU and in `open`.
Placement placed_by_rules(const PricedModel& model, std::vector<const ir::Module*>& open);

}  // namespace ktx::passes

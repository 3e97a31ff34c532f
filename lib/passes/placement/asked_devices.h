// The devices that rules set for modules. A module without a rule goes with its nearest ancestor
// that has a device, else with the attention of its layer:
//
//   layers.3.self_attn          cuda:1   by a rule
//   layers.3.self_attn.kv_b_proj         -> cuda:1, as self_attn
//   layers.3.input_layernorm             -> cuda:1, as the layer's attention
//   model.norm                           -> as the last layer
#pragma once

#include <string>
#include <vector>

#include "lib/ir/module_graph.h"

namespace ktx::passes {

// By module: a name of the rules' grammar (lib/rules/device_name.h), or "" where nothing is asked.
std::vector<std::string> asked_devices(const ir::ModuleGraph& modules);

}  // namespace ktx::passes

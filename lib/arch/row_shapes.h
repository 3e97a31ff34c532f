// Derives a module's attributes and the shapes of its parameters from the config.
#pragma once

#include <optional>
#include <string_view>

#include "lib/arch/hyper_params.h"
#include "lib/arch/rope_frequencies.h"
#include "lib/arch/tensor_binder.h"
#include "lib/ir/module_graph.h"

namespace ktx::arch {

// `parent` distinguishes the projections of dense, shared and routed parts; `layer` is -1 outside
// of the layers. `local_rope` is that of layers with a window.
ir::ModuleInfo info_of(ir::Role role, ir::Role parent, int32_t layer, const HyperParams& params,
                       const RopeTable& rope, const RopeTable& local_rope);

// The shape of parameter `name` of a module with these attributes.
ParamShape shape_of(std::string_view name, const ir::ModuleInfo& info, int32_t layer,
                    const HyperParams& params);

}  // namespace ktx::arch

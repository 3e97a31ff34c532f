// Which weight formats GPUs can compute with.
#pragma once

#include <string>

#include "lib/ir/module_graph.h"

namespace ktx::passes {

// Why no GPU kernel accepts a parameter; "" if one does.
std::string gpu_refusal(ir::Role role, const ir::Param& param);

}  // namespace ktx::passes

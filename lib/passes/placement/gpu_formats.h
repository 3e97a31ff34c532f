// Which weights GPUs compute with.
#pragma once

#include <string>

#include "lib/ir/module_graph.h"

namespace ktx::passes {

// Why no GPU kernel takes a parameter; "" when one does.
std::string gpu_refusal(ir::Role role, const ir::Param& param);

}  // namespace ktx::passes

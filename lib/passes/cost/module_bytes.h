// The size of a module's weights.
#pragma once

#include <cstdint>

#include "lib/ir/module_graph.h"

namespace ktx::passes {

// The bytes of a parameter, with 16 bits a weight where it is `dense`.
uint64_t param_bytes(const ir::Param& param, bool dense);
// The bytes of a module's own weights in the form that its decision sets.
uint64_t placed_bytes(const ir::Module& module);
// The same as they are in the GGUF.
uint64_t source_bytes(const ir::Module& module);

// a * b; on overflow, far more than any memory.
uint64_t times(uint64_t a, uint64_t b);

}  // namespace ktx::passes

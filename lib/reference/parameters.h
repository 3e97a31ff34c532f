// Parameters of a module as F32, from the tensors of a GGUF of which they are made.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "lib/input/gguf.h"
#include "lib/ir/module_graph.h"
#include "lib/support/result.h"

namespace ktx::reference {

// Rows of a slice that goes to the end of its tensor, too; -1: there is no such tensor.
int64_t row_count(const input::GgufFile& gguf, const ir::Param& param, const TensorSlice& slice);
Status check_sources(const ir::Param& param, const input::GgufFile& gguf);
// Rows [first, first + count) of a parameter whose sources were checked, of all its matrices.
std::vector<float> dequantise(const ir::Param& param, const input::GgufFile& gguf, int64_t first,
                              int64_t count);

}  // namespace ktx::reference

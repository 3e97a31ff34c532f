// The layout that rules ask for, and whether weights can have it.
//
//   - match: {kind: experts}
//     replace: {device: cpu, layout: rows}      # the GGUF's bytes instead of panels
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "lib/formats/dtype.h"
#include "lib/formats/layout.h"
#include "lib/ir/module_graph.h"
#include "lib/ops/step_ops.h"

namespace ktx::passes {

// Nothing when no rule asks, or asks for a format to re-quantise to (lint/rule_weights.cc).
std::optional<Layout> asked_layout(const ir::Decision& decision);

// Why matrices of this shape on a device ("cpu", "cuda:0") cannot have the layout; ""
// when they can.
std::string layout_obstacle(Layout layout, const std::string& device, DType dtype, int64_t rows,
                            int64_t cols, int64_t matrices);

}  // namespace ktx::passes

// The row ops (row_ops.def) as an array.
#pragma once

#include "lib/ops/step_ops.h"

namespace ktx::kernels {

inline constexpr StepOp kRowOps[] = {
#define KTX_ROW_OP(op, family, arithmetic, sentence) StepOp::op,
#include "kernels/rows/row_ops.def"
#undef KTX_ROW_OP
};

}  // namespace ktx::kernels

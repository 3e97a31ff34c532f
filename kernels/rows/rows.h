// Row ops: element i of row t of y depends on row t of one or two inputs, at i or as a whole.
//
//   glu            y[t][i] = act(gate[t][i]) * up[t][i]   (GluAttrs)
//   sigmoid_scale  y[t][i] = x[t][i] * sigmoid(gate[t][0])
//   gather_rows    y[t][i] = x[from[t]][i]                    zeros where from[t] is negative
//   head_scale     y[t][h][i] = x[t][h][i] * f(gate[t][h])    a row is a head (make_heads_rows)
//
// row_ops.h holds the arithmetic of all of them, once for CPU and GPU; row_ops.def makes kernels,
// steps and launchers of it. These arguments serve both devices.
//
// Each element depends on its own inputs only: the same bits at any place in a row, in any range.
// y may be an input where kInPlace or kInPlaceAny say so (step_ops.def), else they do not overlap.
// Ops with weights (rms_norm, rope) have kernels and steps of their own.
#pragma once

#include <cstdint>
#include <string_view>

#include "lib/ops/step_attrs.h"
#include "lib/support/result.h"
#include "lib/target/isa.h"

namespace ktx::kernels {

struct RowsInput {
  const float* data = nullptr;
  int64_t stride = 0;  // elements from row to row
};

inline constexpr int kRowsInputs = 2;

// What a kernel works on; on a GPU the pointers are the GPU's.
struct RowsOperands {
  RowsInput in[kRowsInputs];          // in the order of step_ops.def
  const int32_t* from = nullptr;      // of ops with kReadsAnyRow: the inputs' row for each row of y
  const int32_t* position = nullptr;  // of ops with kReadsPosition: of each row
  float* y = nullptr;
  int64_t y_stride = 0;
  int64_t width = 0;        // of y
  int64_t token_begin = 0;  // rows of y
  int64_t token_end = 0;
};

// An op whose rows are heads (HeadScaleAttrs) sees the memory of whole values by heads.
inline void make_heads_rows(RowsOperands& a, int32_t heads) {
  a.width /= heads;
  a.in[0].stride = a.y_stride = a.width;
  a.in[1].stride = 1;
  a.token_begin *= heads;
  a.token_end *= heads;
}

struct RowsArgs : RowsOperands {
  StepAttrs attrs;  // of the op
};
using RowsFn = void (*)(const RowsArgs&);

// Families: those of row_ops.def.
Result<RowsFn> find_rows(std::string_view family, Isa isa);

}  // namespace ktx::kernels

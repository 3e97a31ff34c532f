// The arithmetic of the row ops, once for CPU and GPU:
//
//   const RowOp<StepOp::SigmoidScale> op(inputs, attrs);   once a row
//   y[i] = op(x[i]);                                       or op(gate[i], up[i])
//
// The number of parameters of operator() is that of the inputs that are read element by element,
// the first ones of step_ops.def; what else depends on the row is computed by the constructor,
// from any input. Included by rows_scalar.cc and cuda/rows.cu only: vector kernels of a CPU
// (rows_loop.h) round as these do, but for the exponential.
#pragma once

#include <cmath>
#include <type_traits>

#include "kernels/rows/glu.h"
#include "kernels/rows/rows.h"

namespace ktx::kernels {

// Each input at the row that is at work; absent ones are null.
struct RowInputs {
  const float* in[kRowsInputs];
  int32_t position;  // of ops with kReadsPosition; else 0
};

template <StepOp op>
struct RowOp;

template <>
struct RowOp<StepOp::Glu> {
  GluAttrs attrs;
  KTX_CPU_AND_GPU RowOp(const RowInputs&, const GluAttrs& a) : attrs(a) {}
  KTX_CPU_AND_GPU float operator()(float gate, float up) const { return row_glu(attrs, gate, up); }
};

template <>
struct RowOp<StepOp::Add> {
  KTX_CPU_AND_GPU RowOp(const RowInputs&, const NoAttrs&) {}
  KTX_CPU_AND_GPU float operator()(float a, float b) const { return a + b; }
};

template <>
struct RowOp<StepOp::SigmoidScale> {
  float scale;
  KTX_CPU_AND_GPU RowOp(const RowInputs& row, const NoAttrs&) : scale(row_sigmoid(*row.in[1])) {}
  KTX_CPU_AND_GPU float operator()(float x) const { return x * scale; }
};

template <>
struct RowOp<StepOp::GatherRows> {
  KTX_CPU_AND_GPU RowOp(const RowInputs&, const NoAttrs&) {}
  KTX_CPU_AND_GPU float operator()(float x) const { return x; }
};

template <>
struct RowOp<StepOp::Scale> {
  float factor;
  KTX_CPU_AND_GPU RowOp(const RowInputs&, const ScaleAttrs& attrs) : factor(attrs.factor) {}
  KTX_CPU_AND_GPU float operator()(float x) const { return x * factor; }
};

template <>
struct RowOp<StepOp::Softcap> {
  float cap;
  KTX_CPU_AND_GPU RowOp(const RowInputs&, const SoftcapAttrs& attrs) : cap(attrs.cap) {}
  KTX_CPU_AND_GPU float operator()(float x) const { return cap * tanhf(x / cap); }
};

template <>
struct RowOp<StepOp::PositionScale> {
  float factor;
  KTX_CPU_AND_GPU RowOp(const RowInputs& row, const PositionScaleAttrs& attrs)
      : factor(1 + attrs.growth * logf(1 + static_cast<float>(contexts(row, attrs)))) {}
  // Rows that pad a launch have negative positions.
  KTX_CPU_AND_GPU static int32_t contexts(const RowInputs& row, const PositionScaleAttrs& attrs) {
    return row.position > 0 ? row.position / attrs.context : 0;
  }
  KTX_CPU_AND_GPU float operator()(float x) const { return x * factor; }
};

template <>
struct RowOp<StepOp::Activate> {
  ActivateAttrs attrs;
  KTX_CPU_AND_GPU RowOp(const RowInputs&, const ActivateAttrs& a) : attrs(a) {}
  KTX_CPU_AND_GPU float operator()(float x) const { return row_unit(attrs, x); }
};

template <>
struct RowOp<StepOp::RowScale> {
  float scale;
  KTX_CPU_AND_GPU RowOp(const RowInputs& row, const NoAttrs&) : scale(*row.in[1]) {}
  KTX_CPU_AND_GPU float operator()(float x) const { return x * scale; }
};

template <>
struct RowOp<StepOp::CountScale> {
  float factor;
  KTX_CPU_AND_GPU RowOp(const RowInputs& row, const PositionScaleAttrs& attrs)
      : factor(1 + attrs.growth * logf(1 + static_cast<float>(contexts(row, attrs)))) {}
  // Rows that pad a launch have negative positions.
  KTX_CPU_AND_GPU static int32_t contexts(const RowInputs& row, const PositionScaleAttrs& attrs) {
    if (row.position < 0) return 0;
    return static_cast<int32_t>((int64_t{row.position} + 1) / attrs.context);
  }
  KTX_CPU_AND_GPU float operator()(float x) const { return x * factor; }
};

// A head is a row here (head_rows).
template <>
struct RowOp<StepOp::HeadScale> {
  float scale;
  KTX_CPU_AND_GPU RowOp(const RowInputs& row, const HeadScaleAttrs& attrs)
      : scale(attrs.function == static_cast<int32_t>(HeadGate::Softplus)
                  ? row_softplus(*row.in[1])
                  : row_sigmoid(*row.in[1])) {}
  KTX_CPU_AND_GPU float operator()(float x) const { return x * scale; }
};

// What the loops over rows of both devices ask of an op.
template <StepOp op>
inline constexpr int kElementInputs = std::is_invocable_v<const RowOp<op>&, float, float> ? 2 : 1;

// The row of the inputs that row t of y is made of; negative: none, y is zeros.
template <StepOp op>
KTX_CPU_AND_GPU int64_t input_row(const RowsOperands& a, int64_t t) {
  if constexpr (has_trait<op>(kReadsAnyRow)) return a.from[t];
  return t;
}
KTX_CPU_AND_GPU inline RowInputs inputs_at(const RowsOperands& a, int64_t row) {
  RowInputs inputs;
  inputs.position = a.position ? a.position[row] : 0;
  for (int i = 0; i < kRowsInputs; ++i) inputs.in[i] = a.in[i].data + row * a.in[i].stride;
  return inputs;
}

}  // namespace ktx::kernels

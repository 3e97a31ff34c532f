// Names a kernel family for each step, precision and batch class.
//
// A family fixes arithmetic and layout; the instruction set is chosen when the
// plan is loaded (kernels/kernel_id.h). So far every batch class takes the same
// family.
#include <fmt/format.h>

#include "kernels/kernel_id.h"
#include "kernels/matmul/matmul.h"
#include "lib/passes/pass.h"

namespace ktx::passes {
namespace {

// The dtype that decides a step's family: that of its weights; F32 when two
// weights of one step do not both take int8 inputs.
DType deciding_dtype(const steps::StepGraph& graph, const steps::Step& step) {
  if (step.weights.empty() || step.weights[0] == steps::kAbsent) return DType::F32;
  const DType first = graph.blobs[step.weights[0]].dtype;
  if (step.op != StepOp::ExpertsGateUp) return first;
  const DType second = graph.blobs[step.weights[1]].dtype;
  return kernels::matmul_q8_takes(first) && kernels::matmul_q8_takes(second) ? first : DType::F32;
}

bool is_transposed(const steps::Step& step) {
  const auto* attrs = std::get_if<MatmulHeadsAttrs>(&step.attrs);
  return attrs && attrs->transposed;
}

}  // namespace

Status choose_kernels(CompileState& state) {
  constexpr kernels::Precision kPrecision[] = {kernels::Precision::Exact, kernels::Precision::Fast};
  for (steps::Step& step : state.steps.steps) {
    const DType dtype = deciding_dtype(state.steps, step);
    for (int p = 0; p < steps::kPrecisions; ++p) {
      const bool gpu = step.device != "cpu";
      const std::string_view family =
          gpu ? kernels::gpu_kernel_family(step.op)
              : kernels::kernel_family(step.op, kPrecision[p], dtype, is_transposed(step));
      if (family.empty() && step.op != StepOp::Quantize) {
        return Error{fmt::format("no kernel for step '{}' of module '{}' with {} weights",
                                 info(step.op).name, step.module, name(dtype))};
      }
      step.kernels[p].fill(std::string(family));
    }
  }
  return {};
}

}  // namespace ktx::passes

#include "lib/program/gpu_form.h"

#include <algorithm>

#include "lib/program/fused/fused_rules.h"

namespace ktx::program {

using kernels::GpuForm;

GpuForm gpu_form(const Program& program, const Step& step) {
  GpuForm form;
  form.op = step.op;
  if (const auto* heads = std::get_if<MatmulHeadsAttrs>(&step.attrs)) {
    form.transposed = heads->transposed != 0;
  }
  if (const auto* experts = std::get_if<ExpertsAttrs>(&step.attrs)) {
    form.experts = experts->experts;
    form.top_k = experts->top_k;
  }
  const size_t matrices = std::max<size_t>(product_weights(step.op), 1);
  for (size_t i = 0; i < std::min(matrices, step.weights.size()); ++i) {
    form.weights.push_back(gpu_weight(program, step, i));
  }
  form.bias = step.op == StepOp::Matmul && program.weight(step, 1) != nullptr;
  return form;
}

GpuForm streamed_form(const Program& program, const Step& step) {
  GpuForm form = gpu_form(program, step);
  for (size_t i = 0; i < std::min(product_weights(step.op), form.weights.size()); ++i) {
    form.weights[i].layout = Layout::Marlin;
  }
  return form;
}

GpuForm gpu_form(const Program& program, const FusedGroup& group) {
  GpuForm form;
  form.fused = group.op;
  fused_rule(group.op).describe(form, GroupMembers(program, group));
  return form;
}

}  // namespace ktx::program

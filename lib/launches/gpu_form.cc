#include "lib/launches/gpu_form.h"

#include <algorithm>

#include "lib/launches/fused/fused_rules.h"

namespace ktx::launches {

using kernels::GpuForm;

GpuForm gpu_form(const ListedStep& step) {
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
    add_weight(form, step.weights[i]);
  }
  form.bias = step.op == StepOp::Matmul && step.weights.size() > 1 && step.weights[1].present();
  return form;
}

GpuForm gpu_form(const StepList& list, const FusedGroup& group) {
  GpuForm form;
  form.fused = group.op;
  fused_rules()[static_cast<size_t>(group.op)].describe(form, GroupMembers(list, group));
  return form;
}

}  // namespace ktx::launches

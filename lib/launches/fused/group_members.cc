#include "lib/launches/fused/group_members.h"

namespace ktx::launches {

const ListedStep* GroupMembers::find(StepOp op, int number) const {
  for (int32_t i : group_.steps) {
    if (list_.steps[i].op == op && number-- == 0) return &list_.steps[i];
  }
  return nullptr;
}

bool GroupMembers::aligned(const ListedOperand& operand, int64_t elements) const {
  return operand.offset % elements == 0 && list_.values[operand.value].row_elements % elements == 0;
}

void add_weight(kernels::GpuForm& form, const ListedWeight& weight) {
  form.weights.push_back({weight.dtype, weight.layout, weight.rows, weight.cols});
}

void add_products(kernels::GpuForm& form, const GroupMembers& steps) {
  const ListedStep* norm = steps.find(StepOp::RmsNorm);
  form.norm = norm != nullptr;
  for (int i = 0; const ListedStep* product = steps.find(StepOp::Matmul, i); ++i) {
    add_weight(form, product->weights[0]);
    form.bias |= product->weights.size() > 1 && product->weights[1].present();
  }
  const ListedStep& reader = norm ? *norm : steps.of(StepOp::Matmul);
  form.aligned = steps.aligned(reader.inputs[0], 4);
}

}  // namespace ktx::launches

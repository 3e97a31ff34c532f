#include "lib/program/fused/group_members.h"

namespace ktx::program {

const Step* GroupMembers::find(StepOp op, int number) const {
  for (int32_t i : group_.steps) {
    if (program_.steps[i].op == op && number-- == 0) return &program_.steps[i];
  }
  return nullptr;
}

const Step* GroupMembers::product_of(int32_t value) const {
  for (int i = 0; const Step* product = find(StepOp::Matmul, i); ++i) {
    if (product->outputs[0].value == value) return product;
  }
  return nullptr;
}

SharedSteps::SharedSteps(const GroupMembers& steps) : glu(steps.find(StepOp::Glu)) {
  gate = steps.product_of(glu->inputs[0].value);
  up = steps.product_of(glu->inputs[1].value);
  const Step* const scale = steps.find(StepOp::SigmoidScale);
  score = scale ? steps.product_of(scale->inputs[1].value) : nullptr;
  down = steps.product_of((scale ? scale : steps.find(StepOp::Add))->inputs[scale ? 0 : 1].value);
}

bool GroupMembers::aligned(const View& operand, int64_t elements) const {
  return operand.offset % elements == 0 &&
         row_elements(program_.values[operand.value]) % elements == 0;
}

kernels::GpuWeight gpu_weight(const Program& program, const Step& step, size_t number) {
  const Blob* const blob = program.weight(step, number);
  if (blob == nullptr) return {};
  return {blob->dtype, blob->layout, blob->rows, blob->cols};
}

void add_products(kernels::GpuForm& form, const GroupMembers& steps) {
  const Step* norm = steps.find(StepOp::RmsNorm);
  form.norm = norm != nullptr;
  for (int i = 0; const Step* product = steps.find(StepOp::Matmul, i); ++i) {
    form.weights.push_back(steps.weight(*product));
    form.bias |= steps.has_weight(*product, 1);
  }
  const Step& reader = norm ? *norm : steps.of(StepOp::Matmul);
  form.aligned = steps.aligned(reader.inputs[0], 4);
}

}  // namespace ktx::program

#include "lib/runtime/cuda/fused_members.h"

#include <algorithm>

namespace ktx::runtime {

FusedMembers::FusedMembers(CudaGpu& gpu, const GpuBindContext& context)
    : gpu_(gpu), launch_(context.launch) {
  for (int32_t i : launch_.steps) {
    const GpuBindContext own{context.plan,      context.plan.program->steps[i],
                             context.arena,     context.buffer_offsets,
                             context.blobs,     context.kv,
                             context.kv_memory, context.states,
                             context.batch,     context.launch};
    contexts_.push_back(own);
  }
}

size_t FusedMembers::find(StepOp op, int number) const {
  for (size_t i = 0; i < contexts_.size(); ++i) {
    if (contexts_[i].step.op == op && number-- == 0) return i;
  }
  return contexts_.size();
}

CudaBind FusedMembers::product_for(StepOp reader, size_t operand) const {
  const auto value = contexts_[find(reader, 0)].step.inputs[operand].value;
  int number = 0;
  while (contexts_[find(StepOp::Matmul, number)].step.outputs[0].value != value) ++number;
  return of(StepOp::Matmul, number);
}

int64_t OneByOne::workspace_bytes(const GpuShape& shape) const {
  int64_t most = 0;
  for (const auto& step : steps_) most = std::max(most, step->workspace_bytes(shape));
  return most;
}
Status OneByOne::launch(const GpuShape& shape, std::byte* workspace, int64_t bytes) const {
  for (const auto& step : steps_) KTX_TRY(step->launch(shape, workspace, bytes));
  return {};
}

Result<OneByOne> FusedMembers::one_by_one() const {
  OneByOne steps;
  for (const GpuBindContext& context : contexts_) {
    steps.add(KTX_TRY(make_cuda_step(gpu_, context)));
  }
  return steps;
}

Result<kernels::CudaOneX> FusedMembers::x(const CudaView& plain, GpuMemory& keep) const {
  if (!has(StepOp::RmsNorm)) return kernels::CudaOneX{plain.f32(), nullptr, 0};
  const CudaBind norm = of(StepOp::RmsNorm);
  return kernels::CudaOneX{norm.input(0).f32(), KTX_TRY(norm.vector(0, keep)),
                           norm.attrs<RmsNormAttrs>().eps};
}

Result<kernels::CudaSkinnyX> FusedMembers::skinny_x(const CudaView& plain, GpuMemory& keep) const {
  const kernels::CudaOneX one = KTX_TRY(x(plain, keep));
  const CudaView read = has(StepOp::RmsNorm) ? of(StepOp::RmsNorm).input(0) : plain;
  return kernels::CudaSkinnyX{one.x, read.stride, 0, one.norm, one.eps};
}

}  // namespace ktx::runtime

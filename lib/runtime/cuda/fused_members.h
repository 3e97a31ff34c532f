// The steps of a fused op (lib/program/find_fused.h) by op, in the order of the plan, and what
// the launches that replace them need from them: cuda_fused_steps.cc for one token,
// cuda_skinny_steps.cc for few, cuda_latent_steps.cc for many.
#pragma once

#include <vector>

#include "kernels/cuda/gemv/cuda_fused_gemv.h"
#include "kernels/cuda/skinny_gemm/cuda_fused_skinny_gemm.h"
#include "lib/runtime/cuda/cuda_steps.h"

namespace ktx::runtime {

// Launches of the steps one by one, for passes that the fused launcher does not take.
class OneByOne {
 public:
  void add(std::unique_ptr<GpuStep> step) { steps_.push_back(std::move(step)); }
  int64_t workspace_bytes(const GpuShape& shape) const;
  Status launch(const GpuShape& shape, std::byte* workspace, int64_t bytes) const;

 private:
  std::vector<std::unique_ptr<GpuStep>> steps_;
};

class FusedMembers {
 public:
  FusedMembers(CudaGpu& gpu, const GpuBindContext& context);
  CudaGpu& gpu() const { return gpu_; }
  // The `number`-th of this op; has() must hold.
  CudaBind of(StepOp op, int number = 0) const {
    return CudaBind(gpu_, contexts_[find(op, number)]);
  }
  const program::Launch& launch() const { return launch_; }
  bool has(StepOp op, int number = 0) const { return find(op, number) < contexts_.size(); }
  // The product that makes an operand of the step of this op; there must be one.
  CudaBind product_for(StepOp reader, size_t operand) const;
  // The two products before a glu: that of its gate, and the other one.
  CudaBind gate() const { return product_for(StepOp::Glu, 0); }
  CudaBind up() const { return product_for(StepOp::Glu, 1); }

  Result<OneByOne> one_by_one() const;

  // x as the products take it: what the norm reads, or `plain` where there is no norm. `keep`
  // holds the norm's weight.
  Result<kernels::CudaOneX> x(const CudaView& plain, GpuMemory& keep) const;
  Result<kernels::CudaSkinnyX> skinny_x(const CudaView& plain, GpuMemory& keep) const;

 private:
  size_t find(StepOp op, int number) const;
  CudaGpu& gpu_;
  const program::Launch& launch_;
  std::vector<GpuBindContext> contexts_;
};

// A step whose class has `Result<bool> bind(const FusedMembers&)`, which says whether the launcher
// takes the formats and shapes.
template <class Step>
Result<std::unique_ptr<GpuStep>> make_fused_step(const FusedMembers& members) {
  auto step = std::make_unique<Step>();
  if (!KTX_TRY(step->bind(members))) {
    return Error{"kernel " + members.launch().kernel +
                 " does not take these weights or shapes; compile the plan again"};
  }
  return std::unique_ptr<GpuStep>(std::move(step));
}

// The launch of a fused op by its kernel: one for each row KTX_GPU_FUSED_KERNEL of
// kernels/gpu/gpu_kernels.def.
template <kernels::GpuKernel kernel>
Result<std::unique_ptr<GpuStep>> make_fused(const FusedMembers& members);

#define KTX_GPU_KERNEL(...)
#define KTX_GPU_FUSED_KERNEL(id, ...) \
  template <>                         \
  Result<std::unique_ptr<GpuStep>> make_fused<kernels::GpuKernel::id>(const FusedMembers&);
#include "kernels/gpu/gpu_kernels.def"
#undef KTX_GPU_FUSED_KERNEL
#undef KTX_GPU_KERNEL

}  // namespace ktx::runtime

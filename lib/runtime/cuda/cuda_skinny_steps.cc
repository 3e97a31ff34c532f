// Fused ops as launches of 2 to 96 tokens (cuda_fused_skinny_gemm.h). Routers and experts go step
// by step; attention is in cuda_fused_steps.cc.
#include "lib/runtime/cuda/fused_members.h"

namespace ktx::runtime {
namespace {

// bind() says whether the launchers take it.
template <class Args, Status (*kLaunch)(const Args&, kernels::CudaStream)>
class SkinnyProduct : public GpuStep {
 public:
  int64_t workspace_bytes(const GpuShape& shape) const override {
    return kernels::skinny_workspace(shape.tokens, cols_);
  }
  Status launch(const GpuShape& shape, std::byte* workspace, int64_t bytes) override {
    Args args = args_;
    args.x.tokens = shape.rows(rows_);
    args.workspace = workspace;
    args.workspace_bytes = bytes;
    gpu_->use();
    return kLaunch(args, gpu_->stream());
  }

 protected:
  Args args_;
  int64_t cols_ = 0;
  RowKind rows_ = RowKind::Token;
  CudaGpu* gpu_ = nullptr;
  GpuMemory norm_, bias_[3];
};

class SkinnyProducts final
    : public SkinnyProduct<kernels::CudaSkinnyProductsArgs, kernels::launch_skinny_products> {
 public:
  Result<bool> bind(const FusedMembers& members) {
    gpu_ = &members.gpu();
    args_.x = KTX_TRY(members.skinny_x({}, norm_));
    for (; members.has(StepOp::Matmul, args_.count); ++args_.count) {
      const CudaBind matmul = members.of(StepOp::Matmul, args_.count);
      kernels::CudaSkinnyOutput& output = args_.outputs[args_.count];
      output.w = KTX_TRY(matmul.product_weight(0));
      output.y = matmul.output(0).f32();
      output.y_stride = matmul.output(0).stride;
      output.bias = KTX_TRY(matmul.vector(1, bias_[args_.count]));
    }
    cols_ = args_.outputs[0].w.cols;
    rows_ = members.of(StepOp::Matmul).output(0).rows;
    return kernels::skinny_products_take(args_);
  }
};

class SkinnyGateUp final
    : public SkinnyProduct<kernels::CudaSkinnyGateUpArgs, kernels::launch_skinny_gate_up> {
 public:
  Result<bool> bind(const FusedMembers& members) {
    gpu_ = &members.gpu();
    const CudaBind glu = members.of(StepOp::Glu);
    const CudaBind gate = members.gate(), up = members.up();
    args_.x = KTX_TRY(members.skinny_x(gate.input(0), norm_));
    args_.gate = KTX_TRY(gate.product_weight(0));
    args_.up = KTX_TRY(up.product_weight(0));
    args_.y = glu.output(0).f32();
    args_.glu = glu.attrs<GluAttrs>();
    args_.y_stride = glu.output(0).stride;
    cols_ = args_.gate.cols;
    rows_ = glu.output(0).rows;
    const bool plain = !KTX_TRY(gate.vector(1, bias_[0])) && !KTX_TRY(up.vector(1, bias_[1]));
    return plain && kernels::skinny_gate_up_takes(args_);
  }
};

}  // namespace

template <>
Result<std::unique_ptr<GpuStep>> make_fused<kernels::GpuKernel::ProductsSkinnyGemm>(
    const FusedMembers& members) {
  return make_fused_step<SkinnyProducts>(members);
}
template <>
Result<std::unique_ptr<GpuStep>> make_fused<kernels::GpuKernel::GateUpSkinnyGemm>(
    const FusedMembers& members) {
  return make_fused_step<SkinnyGateUp>(members);
}

}  // namespace ktx::runtime

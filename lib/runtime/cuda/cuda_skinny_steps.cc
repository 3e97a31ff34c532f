// Fused ops as launches of 2 to 96 tokens (cuda_fused_skinny_gemm.h), on Hopper of 33 and more
// (cuda_fused_gemm.h). Routers and experts go step by step; attention is in cuda_fused_steps.cc.
#include "kernels/cuda/gemm/cuda_fused_gemm.h"
#include "lib/runtime/cuda/fused_members.h"

namespace ktx::runtime {
namespace {

using kernels::CudaSkinnyGateUpArgs;
using kernels::CudaSkinnyProductsArgs;
using kernels::CudaStream;

struct SkinnyGemms {
  static int64_t workspace(int64_t tokens, int64_t cols) {
    return kernels::skinny_workspace(tokens, cols);
  }
  static bool take(const CudaSkinnyProductsArgs& a) { return kernels::skinny_products_take(a); }
  static bool take(const CudaSkinnyGateUpArgs& a) { return kernels::skinny_gate_up_takes(a); }
  static Status launch(const CudaSkinnyProductsArgs& a, CudaStream stream) {
    return kernels::launch_skinny_products(a, stream);
  }
  static Status launch(const CudaSkinnyGateUpArgs& a, CudaStream stream) {
    return kernels::launch_skinny_gate_up(a, stream);
  }
};

struct Gemms {
  static int64_t workspace(int64_t tokens, int64_t cols) {
    return kernels::gemm_workspace(tokens, cols);
  }
  static bool take(const CudaSkinnyProductsArgs& a) { return kernels::gemm_products_take(a); }
  static bool take(const CudaSkinnyGateUpArgs& a) { return kernels::gemm_gate_up_takes(a); }
  static Status launch(const CudaSkinnyProductsArgs& a, CudaStream stream) {
    return kernels::launch_gemm_products(a, stream);
  }
  static Status launch(const CudaSkinnyGateUpArgs& a, CudaStream stream) {
    return kernels::launch_gemm_gate_up(a, stream);
  }
};

// bind() says whether the launchers take it.
template <class Launchers, class Args>
class ProductsOfRows : public GpuStep {
 public:
  int64_t workspace_bytes(const GpuShape& shape) const override {
    return Launchers::workspace(shape.tokens, cols_);
  }
  Status launch(const GpuShape& shape, std::byte* workspace, int64_t bytes) override {
    Args args = args_;
    args.x.tokens = shape.rows(rows_);
    args.workspace = workspace;
    args.workspace_bytes = bytes;
    gpu_->use();
    return Launchers::launch(args, gpu_->stream());
  }

 protected:
  Args args_;
  int64_t cols_ = 0;
  RowKind rows_ = RowKind::Token;
  CudaGpu* gpu_ = nullptr;
  GpuMemory norm_, bias_[kernels::kLaunchProducts];
};

template <class Launchers>
class ManyProducts final : public ProductsOfRows<Launchers, CudaSkinnyProductsArgs> {
  using Base = ProductsOfRows<Launchers, CudaSkinnyProductsArgs>;
  using Base::args_, Base::bias_, Base::cols_, Base::gpu_, Base::norm_, Base::rows_;

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
    return Launchers::take(args_);
  }
};

template <class Launchers>
class ManyGateUp final : public ProductsOfRows<Launchers, CudaSkinnyGateUpArgs> {
  using Base = ProductsOfRows<Launchers, CudaSkinnyGateUpArgs>;
  using Base::args_, Base::bias_, Base::cols_, Base::gpu_, Base::norm_, Base::rows_;

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
    return plain && Launchers::take(args_);
  }
};

}  // namespace

template <>
Result<std::unique_ptr<GpuStep>> make_fused<kernels::GpuKernel::ProductsSkinnyGemm>(
    const FusedMembers& members) {
  return make_fused_step<ManyProducts<SkinnyGemms>>(members);
}
template <>
Result<std::unique_ptr<GpuStep>> make_fused<kernels::GpuKernel::GateUpSkinnyGemm>(
    const FusedMembers& members) {
  return make_fused_step<ManyGateUp<SkinnyGemms>>(members);
}

template <>
Result<std::unique_ptr<GpuStep>> make_fused<kernels::GpuKernel::ProductsGemmWgmma>(
    const FusedMembers& members) {
  return make_fused_step<ManyProducts<Gemms>>(members);
}
template <>
Result<std::unique_ptr<GpuStep>> make_fused<kernels::GpuKernel::GateUpGemmWgmma>(
    const FusedMembers& members) {
  return make_fused_step<ManyGateUp<Gemms>>(members);
}

}  // namespace ktx::runtime

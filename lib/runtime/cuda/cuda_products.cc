// matmul, matmul_heads and the experts on a GPU.
#include "kernels/cuda/experts/cuda_experts.h"
#include "kernels/cuda/matmul/cuda_matmul.h"
#include "lib/runtime/cuda/cuda_steps.h"

namespace ktx::runtime {

Result<kernels::CudaMatmulHeadsArgs> matmul_heads_args(const CudaBind& context) {
  const CudaView x = context.input(0), y = context.output(0);
  kernels::CudaMatmulHeadsArgs args;
  args.w = KTX_TRY(context.product_weight(0));
  args.attrs = context.attrs<MatmulHeadsAttrs>();
  args.x = x.f32();
  args.x_stride = x.stride;
  args.y = y.f32();
  args.y_stride = y.stride;
  return args;
}

// Refuses factors of gate and up: the compiler leaves such experts on the CPU (place-devices).
Status require_no_factors(const CudaBind& gate_up) {
  GpuMemory keep;
  for (int i : {4, 5}) {
    if (KTX_TRY(gate_up.vector(i, keep))) {
      return Error{"no GPU kernel applies factors of the gate and up products of each expert"};
    }
  }
  return {};
}

namespace {

template <class Args, int64_t (*Workspace)(const Args&),
          Status (*Launch)(const Args&, kernels::CudaStream)>
class Product : public GpuStep {
 public:
  int64_t workspace_bytes(const GpuShape& shape) const override {
    Args args = args_;
    args.tokens = shape.rows(rows_);
    return Workspace(args);
  }
  Status launch(const GpuShape& shape, std::byte* workspace, int64_t bytes) override {
    Args args = args_;
    args.tokens = shape.rows(rows_);
    args.workspace = workspace;
    args.workspace_bytes = bytes;
    gpu_->use();
    return Launch(args, gpu_->stream());
  }

 protected:
  Args args_;
  RowKind rows_ = RowKind::Token;
  CudaGpu* gpu_ = nullptr;
};

class Matmul final : public Product<kernels::CudaMatmulArgs, kernels::cuda_matmul_workspace,
                                    kernels::launch_matmul> {
 public:
  Status bind(const CudaBind& context) {
    const CudaView x = context.input(0), y = context.output(0);
    args_.w = KTX_TRY(context.product_weight(0));
    args_.bias = KTX_TRY(context.vector(1, bias_));
    args_.x = x.f32();
    args_.x_stride = x.stride;
    args_.y = y.f32();
    args_.y_stride = y.stride;
    args_.accumulate = context.attrs<MatmulAttrs>().accumulate != 0;
    args_.kernel = context.kernel();
    rows_ = y.rows;
    gpu_ = &context.gpu();
    return {};
  }

 private:
  GpuMemory bias_;
};

class MatmulHeads final
    : public Product<kernels::CudaMatmulHeadsArgs, kernels::cuda_matmul_heads_workspace,
                     kernels::launch_matmul_heads> {
 public:
  Status bind(const CudaBind& context) {
    args_ = KTX_TRY(matmul_heads_args(context));
    rows_ = context.output(0).rows;
    args_.kernel = context.kernel();
    gpu_ = &context.gpu();
    return {};
  }
};

class ExpertsGateUp final
    : public Product<kernels::CudaExpertsGateUpArgs, kernels::cuda_experts_gate_up_workspace,
                     kernels::launch_experts_gate_up> {
 public:
  Status bind(const CudaBind& context) {
    const CudaView x = context.input(0), h = context.output(0);
    KTX_TRY(require_whole(h, "h"));
    KTX_TRY(require_no_factors(context));
    args_.gate = KTX_TRY(context.product_weight(0));
    args_.up = KTX_TRY(context.product_weight(1));
    args_.gate_bias = KTX_TRY(context.vector(2, bias_[0]));
    args_.up_bias = KTX_TRY(context.vector(3, bias_[1]));
    args_.attrs = context.attrs<ExpertsAttrs>();
    args_.order = context.input(2).i32();
    args_.offsets = context.input(3).i32();
    args_.x = x.f32();
    args_.x_stride = x.stride;
    args_.h = h.f32();
    args_.h_stride = h.width / h.rows_per_row;
    args_.kernel = context.kernel();
    gpu_ = &context.gpu();
    return {};
  }

 private:
  GpuMemory bias_[2];
};

class ExpertsDown final
    : public Product<kernels::CudaExpertsDownArgs, kernels::cuda_experts_down_workspace,
                     kernels::launch_experts_down> {
 public:
  Status bind(const CudaBind& context) {
    const CudaView h = context.input(0), weights = context.input(4), y = context.output(0);
    KTX_TRY(require_whole(h, "h"));
    KTX_TRY(require_whole(weights, "weights"));
    args_.down = KTX_TRY(context.product_weight(0));
    args_.bias = KTX_TRY(context.vector(1, bias_));
    args_.attrs = context.attrs<ExpertsAttrs>();
    if (args_.attrs.by_pair != 0) return Error{"a GPU gives sums of experts, not their terms"};
    args_.order = context.input(2).i32();
    args_.offsets = context.input(3).i32();
    args_.weights = weights.f32();
    args_.h = h.f32();
    args_.h_stride = h.width / h.rows_per_row;
    args_.kernel = context.kernel();
    args_.y = y.f32();
    args_.y_stride = y.stride;
    gpu_ = &context.gpu();
    return {};
  }

 private:
  GpuMemory bias_;
};

}  // namespace

const MakeCudaStep make_cuda_matmul = make_bound<Matmul>;
const MakeCudaStep make_cuda_matmul_heads = make_bound<MatmulHeads>;
const MakeCudaStep make_cuda_experts_gate_up = make_bound<ExpertsGateUp>;
const MakeCudaStep make_cuda_experts_down = make_bound<ExpertsDown>;

}  // namespace ktx::runtime

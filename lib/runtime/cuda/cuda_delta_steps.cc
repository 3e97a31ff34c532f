// causal_conv and delta_rule on a GPU: steps with a state of each text (cache/state_pool.h).
#include <algorithm>
#include <vector>

#include "kernels/gpu/gpu_limits.h"
#include "lib/runtime/cuda/cuda_steps.h"

namespace ktx::runtime {
namespace {

kernels::CudaTexts texts_of(const GpuBatch& batch, const GpuShape& shape) {
  kernels::CudaTexts texts{batch.texts, batch.segments, batch.most_texts, shape.tokens,
                           shape.one_token_each};
  if (shape.one_token_each) {
    texts.texts = shape.tokens;
    texts.most_tokens = 1;
  } else if (!shape.runs.empty()) {
    texts.texts = std::ssize(shape.runs);
    texts.most_tokens = std::ranges::max(shape.runs, {}, &SequenceRun::tokens).tokens;
  }
  return texts;
}

template <class Args, Status (*Launch)(const Args&, kernels::CudaStream)>
class StateStep : public GpuStep {
 public:
  Status launch(const GpuShape& shape, std::byte*, int64_t) override {
    return launch_args(args_, shape);
  }

 protected:
  void begin(const CudaBind& context) {
    const CudaView x = context.input(0), y = context.output(0);
    args_.x = x.f32();
    args_.x_stride = x.stride;
    args_.y = y.f32();
    args_.y_stride = y.stride;
    args_.states = context.states(args_.attrs.state);
    batch_ = context.batch();
    gpu_ = &context.gpu();
  }
  Status launch_args(Args args, const GpuShape& shape) {
    args.texts = texts_of(batch_, shape);
    gpu_->use();
    return Launch(args, gpu_->stream());
  }
  Args args_;

 private:
  GpuBatch batch_;
  CudaGpu* gpu_ = nullptr;
};

struct CausalConv final : StateStep<kernels::CudaCausalConvArgs, kernels::launch_causal_conv> {
  Status bind(const CudaBind& context) {
    args_.attrs = context.attrs<CausalConvAttrs>();
    if (args_.attrs.plain != 0 || context.weight_count() > 1) {
      return Error{
          "no GPU kernel computes a convolution with a bias or without silu; put the state-space "
          "layer on the CPU by a rule"};
    }
    args_.weight = KTX_TRY(context.vector(0, weight_));
    begin(context);
    return {};
  }
  GpuMemory weight_;
};

struct DeltaRule final : StateStep<kernels::CudaDeltaRuleArgs, kernels::launch_delta_rule> {
  Status bind(const CudaBind& context) {
    args_.attrs = context.attrs<DeltaRuleAttrs>();
    if (!kernels::gpu_delta_rule_takes(args_.attrs.head_dim)) {
      return Error{
          "larger heads than a GPU's delta rule takes; put the delta net on the CPU by a rule"};
    }
    const CudaView b = context.input(1), a = context.input(2);
    args_.b = b.f32();
    args_.b_stride = b.stride;
    args_.a = a.f32();
    args_.a_stride = a.stride;
    args_.position = context.batch().position;
    args_.decay = KTX_TRY(context.vector(0, decay_));
    args_.dt_bias = KTX_TRY(context.vector(1, dt_bias_));
    begin(context);
    return {};
  }
  int64_t workspace_bytes(const GpuShape& shape) const override {
    if (shape.one_token_each) return 0;
    return kernels::cuda_delta_rule_workspace(args_.attrs, shape.tokens);
  }
  Status launch(const GpuShape& shape, std::byte* workspace, int64_t bytes) override {
    rows_.clear();
    for (const SequenceRun& run : shape.runs) {
      rows_.push_back({static_cast<int32_t>(run.first), static_cast<int32_t>(run.tokens),
                       static_cast<int32_t>(run.positions - run.tokens)});
    }
    kernels::CudaDeltaRuleArgs args = args_;
    if (!shape.one_token_each) args.rows = rows_;
    args.workspace = workspace;
    args.workspace_bytes = bytes;
    return launch_args(args, shape);
  }

 private:
  std::vector<kernels::TextRows> rows_;  // of the pass
  GpuMemory decay_, dt_bias_;
};

}  // namespace

Result<std::unique_ptr<GpuStep>> make_cuda_causal_conv(const CudaBind& context) {
  return make_bound<CausalConv>(context);
}
Result<std::unique_ptr<GpuStep>> make_cuda_delta_rule(const CudaBind& context) {
  return make_bound<DeltaRule>(context);
}

}  // namespace ktx::runtime

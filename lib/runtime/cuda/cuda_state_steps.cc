// causal_conv, delta_rule and state_space on a GPU: steps with a state of each text
// (cache/state_pool.h).
#include <algorithm>
#include <vector>

#include "kernels/gpu/gpu_limits.h"
#include "lib/runtime/cuda/cuda_steps.h"
#include "lib/runtime/cuda/fused_members.h"

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
    args_.weight = KTX_TRY(context.vector(0, weight_));
    if (context.weight_count() > 1) args_.bias = KTX_TRY(context.vector(1, bias_));
    begin(context);
    return {};
  }
  GpuMemory weight_, bias_;
};

// All but the texts of a pass. `decay` and `dt_bias` hold the weights.
Result<kernels::CudaDeltaRuleArgs> delta_rule_args(const CudaBind& context, GpuMemory& decay,
                                                   GpuMemory& dt_bias) {
  kernels::CudaDeltaRuleArgs args;
  args.attrs = context.attrs<DeltaRuleAttrs>();
  if (!kernels::gpu_delta_rule_takes(args.attrs.head_dim)) {
    return Error{
        "larger heads than a GPU's delta rule takes; put the delta net on the CPU by a rule"};
  }
  const CudaView b = context.input(1), a = context.input(2), y = context.output(0);
  args.b = b.f32();
  args.b_stride = b.stride;
  args.a = a.f32();
  args.a_stride = a.stride;
  args.y = y.f32();
  args.y_stride = y.stride;
  args.position = context.batch().position;
  args.decay = KTX_TRY(context.vector(0, decay));
  args.dt_bias = KTX_TRY(context.vector(1, dt_bias));
  args.states = context.states(args.attrs.state);
  return args;
}

struct DeltaRule final : StateStep<kernels::CudaDeltaRuleArgs, kernels::launch_delta_rule> {
  Status bind(const CudaBind& context) {
    args_ = KTX_TRY(delta_rule_args(context, decay_, dt_bias_));
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

struct StateSpace final : StateStep<kernels::CudaStateSpaceArgs, kernels::launch_state_space> {
  Status bind(const CudaBind& context) {
    args_.attrs = context.attrs<StateSpaceAttrs>();
    if (!kernels::gpu_state_space_takes(args_.attrs.head_dim, args_.attrs.state_dim)) {
      return Error{
          "larger states than a GPU's state space takes; put the state-space layer on the CPU by a "
          "rule"};
    }
    const CudaView dt = context.input(1);
    args_.dt = dt.f32();
    args_.dt_stride = dt.stride;
    args_.decay = KTX_TRY(context.vector(0, decay_));
    args_.skip = KTX_TRY(context.vector(1, skip_));
    args_.dt_bias = KTX_TRY(context.vector(2, dt_bias_));
    begin(context);
    return {};
  }

 private:
  GpuMemory decay_, skip_, dt_bias_;
};

// The fused op delta_net, where each text has one token.
class DeltaStep final : public GpuStep {
 public:
  Result<bool> bind(const FusedMembers& members) {
    const CudaBind conv = members.of(StepOp::CausalConv), rule = members.of(StepOp::DeltaRule);
    const CudaBind norm = members.of(StepOp::RmsNorm), glu = members.of(StepOp::Glu);
    gpu_ = &members.gpu();
    batch_ = conv.batch();
    args_.conv.x = conv.input(0).f32();
    args_.conv.x_stride = conv.input(0).stride;
    args_.conv.attrs = conv.attrs<CausalConvAttrs>();
    args_.conv.weight = KTX_TRY(conv.vector(0, taps_));
    args_.conv.states = conv.states(args_.conv.attrs.state);
    args_.rule = KTX_TRY(delta_rule_args(rule, decay_, dt_bias_));
    args_.norm = KTX_TRY(norm.vector(0, norm_));
    args_.eps = norm.attrs<RmsNormAttrs>().eps;
    args_.gate = glu.input(0).f32();
    args_.gate_stride = glu.input(0).stride;
    args_.glu = glu.attrs<GluAttrs>();
    one_by_one_ = KTX_TRY(members.one_by_one());
    return kernels::gpu_delta_step_takes(args_.rule.attrs, args_.conv.attrs) &&
           norm.attrs<RmsNormAttrs>().groups == args_.rule.attrs.value_heads;
  }
  int64_t workspace_bytes(const GpuShape& shape) const override {
    int64_t most = 0;
    if (shape.one_token_each) return most;
    for (const auto& step : one_by_one_) most = std::max(most, step->workspace_bytes(shape));
    return most;
  }
  Status launch(const GpuShape& shape, std::byte* workspace, int64_t bytes) override {
    if (!shape.one_token_each) {
      for (const auto& step : one_by_one_) KTX_TRY(step->launch(shape, workspace, bytes));
      return {};
    }
    kernels::CudaDeltaStepArgs args = args_;
    args.rule.texts = texts_of(batch_, shape);
    gpu_->use();
    return kernels::launch_delta_step(args, gpu_->stream());
  }

 private:
  kernels::CudaDeltaStepArgs args_;
  std::vector<std::unique_ptr<GpuStep>> one_by_one_;
  GpuBatch batch_;
  GpuMemory taps_, decay_, dt_bias_, norm_;
  CudaGpu* gpu_ = nullptr;
};

}  // namespace

template <>
Result<std::unique_ptr<GpuStep>> make_fused<kernels::GpuKernel::DeltaStep>(
    const FusedMembers& members) {
  return make_fused_step<DeltaStep>(members);
}
Result<std::unique_ptr<GpuStep>> make_cuda_causal_conv(const CudaBind& context) {
  return make_bound<CausalConv>(context);
}
Result<std::unique_ptr<GpuStep>> make_cuda_delta_rule(const CudaBind& context) {
  return make_bound<DeltaRule>(context);
}

Result<std::unique_ptr<GpuStep>> make_cuda_state_space(const CudaBind& context) {
  return make_bound<StateSpace>(context);
}

}  // namespace ktx::runtime

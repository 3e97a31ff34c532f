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

// What all have: attributes, x, y, states.
template <class Args>
Args state_args(const CudaBind& context) {
  const CudaView x = context.input(0), y = context.output(0);
  Args args;
  args.attrs = context.attrs<decltype(args.attrs)>();
  args.x = x.f32();
  args.x_stride = x.stride;
  args.y = y.f32();
  args.y_stride = y.stride;
  args.states = context.states(args.attrs.state);
  return args;
}

template <class Args, Status (*Launch)(const Args&, kernels::CudaStream)>
class StateStep : public GpuStep {
 public:
  Status launch(const GpuShape& shape, std::byte*, int64_t) override {
    return launch_args(args_, shape);
  }

 protected:
  Status begin(const CudaBind& context, Result<Args> args) {
    args_ = KTX_TRY(std::move(args));
    batch_ = context.batch();
    gpu_ = &context.gpu();
    return {};
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

// All but the texts of a pass; `weight`, `bias` and the like hold the weights.
Result<kernels::CudaCausalConvArgs> conv_args(const CudaBind& context, GpuMemory& weight,
                                              GpuMemory& bias) {
  auto args = state_args<kernels::CudaCausalConvArgs>(context);
  if (args.attrs.dilation != 1) {
    return Error{"the GPU convolution takes neighbours alone; put the module on the CPU by a rule"};
  }
  args.weight = KTX_TRY(context.vector(0, weight));
  if (context.weight_count() > 1) args.bias = KTX_TRY(context.vector(1, bias));
  return args;
}
Result<kernels::CudaDeltaRuleArgs> delta_rule_args(const CudaBind& context, GpuMemory& decay,
                                                   GpuMemory& dt_bias) {
  auto args = state_args<kernels::CudaDeltaRuleArgs>(context);
  if (!kernels::gpu_delta_rule_takes(args.attrs.head_dim)) {
    return Error{
        "larger heads than the GPU delta rule supports; put the delta net on the CPU by a rule"};
  }
  const CudaView b = context.input(1), a = context.input(2);
  args.b = b.f32();
  args.b_stride = b.stride;
  args.a = a.f32();
  args.a_stride = a.stride;
  args.position = context.batch().position;
  args.decay = KTX_TRY(context.vector(0, decay));
  args.dt_bias = KTX_TRY(context.vector(1, dt_bias));
  return args;
}

struct CausalConv final : StateStep<kernels::CudaCausalConvArgs, kernels::launch_causal_conv> {
  Status bind(const CudaBind& context) {
    return begin(context, conv_args(context, weight_, bias_));
  }
  GpuMemory weight_, bias_;
};

struct DeltaRule final : StateStep<kernels::CudaDeltaRuleArgs, kernels::launch_delta_rule> {
  Status bind(const CudaBind& context) {
    return begin(context, delta_rule_args(context, decay_, dt_bias_));
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
    auto args = state_args<kernels::CudaStateSpaceArgs>(context);
    if (!kernels::gpu_state_space_takes(args.attrs.head_dim, args.attrs.state_dim)) {
      return Error{
          "larger states than a GPU's state space takes; put the state-space layer on the CPU by a "
          "rule"};
    }
    const CudaView dt = context.input(1);
    args.dt = dt.f32();
    args.dt_stride = dt.stride;
    args.decay = KTX_TRY(context.vector(0, decay_));
    args.skip = KTX_TRY(context.vector(1, skip_));
    args.dt_bias = KTX_TRY(context.vector(2, dt_bias_));
    return begin(context, args);
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
    args_.conv = KTX_TRY(conv_args(conv, taps_, bias_));
    args_.rule = KTX_TRY(delta_rule_args(rule, decay_, dt_bias_));
    args_.norm = KTX_TRY(norm.vector(0, norm_));
    args_.eps = norm.attrs<RmsNormAttrs>().eps;
    args_.gate = glu.input(0).f32();
    args_.gate_stride = glu.input(0).stride;
    args_.glu = glu.attrs<GluAttrs>();
    one_by_one_ = KTX_TRY(members.one_by_one());
    return !args_.conv.bias && kernels::gpu_delta_step_takes(args_.rule.attrs, args_.conv.attrs) &&
           norm.attrs<RmsNormAttrs>().groups == args_.rule.attrs.value_heads;
  }
  int64_t workspace_bytes(const GpuShape& shape) const override {
    return shape.one_token_each ? 0 : one_by_one_.workspace_bytes(shape);
  }
  Status launch(const GpuShape& shape, std::byte* workspace, int64_t bytes) override {
    if (!shape.one_token_each) return one_by_one_.launch(shape, workspace, bytes);
    kernels::CudaDeltaStepArgs args = args_;
    args.rule.texts = texts_of(batch_, shape);
    gpu_->use();
    return kernels::launch_delta_step(args, gpu_->stream());
  }

 private:
  kernels::CudaDeltaStepArgs args_;
  OneByOne one_by_one_;
  GpuBatch batch_;
  GpuMemory taps_, bias_, decay_, dt_bias_, norm_;
  CudaGpu* gpu_ = nullptr;
};

}  // namespace

template <>
Result<std::unique_ptr<GpuStep>> make_fused<kernels::GpuKernel::DeltaStep>(
    const FusedMembers& members) {
  return make_fused_step<DeltaStep>(members);
}

const MakeCudaStep make_cuda_causal_conv = make_bound<CausalConv>;
const MakeCudaStep make_cuda_delta_rule = make_bound<DeltaRule>;
const MakeCudaStep make_cuda_state_space = make_bound<StateSpace>;

}  // namespace ktx::runtime

// Fused ops as launches of one token (cuda_fused_gemv.h), attention of few as well.
#include <algorithm>
#include <optional>

#include "kernels/cuda/attention/cuda_attention.h"
#include "kernels/cuda/gemv/cuda_fused_gemv.h"
#include "lib/ops/rope_in_place.h"
#include "lib/runtime/cuda/fused_members.h"

namespace ktx::runtime {
namespace {

using kernels::CudaStream;

using Members = FusedMembers;

// bind() says whether the launchers take it.
class Products final : public GpuStep {
 public:
  Result<bool> bind(const Members& members) {
    gpu_ = &members.gpu();
    args_.x = KTX_TRY(members.x({}, norm_));
    for (; members.has(StepOp::Matmul, args_.count); ++args_.count) {
      const CudaBind matmul = members.of(StepOp::Matmul, args_.count);
      kernels::CudaOneOutput& output = args_.outputs[args_.count];
      output.w = KTX_TRY(matmul.product_weight(0));
      output.y = matmul.output(0).f32();
      output.bias = KTX_TRY(matmul.vector(1, bias_[args_.count]));
    }
    return kernels::one_products_take(args_);
  }
  Status launch(const GpuShape&, std::byte*, int64_t) override {
    gpu_->use();
    return kernels::launch_one_products(args_, gpu_->stream());
  }

 private:
  kernels::CudaOneProductsArgs args_;
  GpuMemory norm_, bias_[kernels::kLaunchProducts];
  CudaGpu* gpu_ = nullptr;
};

class GateUp final : public GpuStep {
 public:
  Result<bool> bind(const Members& members) {
    gpu_ = &members.gpu();
    const CudaBind glu = members.of(StepOp::Glu);
    const CudaBind gate = members.gate(), up = members.up();
    args_.x = KTX_TRY(members.x(gate.input(0), norm_));
    args_.gate = KTX_TRY(gate.product_weight(0));
    args_.up = KTX_TRY(up.product_weight(0));
    args_.y = glu.output(0).f32();
    args_.glu = glu.attrs<GluAttrs>();
    const bool plain = !KTX_TRY(gate.vector(1, bias_)) && !KTX_TRY(up.vector(1, bias_));
    return plain && kernels::one_gate_up_takes(args_);
  }
  Status launch(const GpuShape&, std::byte*, int64_t) override {
    gpu_->use();
    return kernels::launch_one_gate_up(args_, gpu_->stream());
  }

 private:
  kernels::CudaOneGateUpArgs args_;
  GpuMemory norm_, bias_;
  CudaGpu* gpu_ = nullptr;
};

class RouterProduct final : public GpuStep {
 public:
  Result<bool> bind(const Members& members) {
    gpu_ = &members.gpu();
    const CudaBind matmul = members.of(StepOp::Matmul);
    args_.x = KTX_TRY(members.x({}, norm_));
    args_.w = KTX_TRY(matmul.product_weight(0));
    const CudaView logits = matmul.output(0), normed = members.of(StepOp::RmsNorm).output(0);
    args_.x_stride = members.of(StepOp::RmsNorm).input(0).stride;
    args_.logits = logits.f32();
    args_.logits_stride = logits.stride;
    args_.normed = normed.f32();
    args_.normed_stride = normed.stride;
    args_.bias = KTX_TRY(matmul.vector(1, bias_));
    return kernels::one_router_takes(args_);
  }
  Status launch(const GpuShape& shape, std::byte*, int64_t) override {
    kernels::CudaOneRouterArgs args = args_;
    args.tokens = shape.tokens;
    gpu_->use();
    return kernels::launch_one_router(args, gpu_->stream());
  }

 private:
  kernels::CudaOneRouterArgs args_;
  GpuMemory norm_, bias_;
  CudaGpu* gpu_ = nullptr;
};

// Two launches.
class Experts final : public GpuStep {
 public:
  Result<bool> bind(const Members& members) {
    gpu_ = &members.gpu();
    const CudaBind router = members.of(StepOp::Router), gate_up = members.of(StepOp::ExpertsGateUp);
    const CudaBind down = members.of(StepOp::ExpertsDown);
    choices_.router = KTX_TRY(router_args(router, vectors_));
    KTX_TRY(require_no_factors(gate_up));
    const auto most_ids = static_cast<uint64_t>(members.launch().most_tokens) *
                          static_cast<uint64_t>(choices_.router.attrs.top_k);
    ids_ = KTX_TRY(gpu_->allocate(most_ids * 4, "numbers of experts"));
    choices_.router.ids = reinterpret_cast<int32_t*>(ids_.data());
    const CudaBind group = members.of(StepOp::GroupExperts);
    choices_.router.places = KTX_TRY(group.vector(0, places_));
    choices_.router.here = group.attrs<GroupExpertsAttrs>().experts;
    choices_.router.weights = router.output(1).f32();
    choices_.gate = KTX_TRY(gate_up.product_weight(0));
    choices_.up = KTX_TRY(gate_up.product_weight(1));
    choices_.glu = gate_up.attrs<ExpertsAttrs>().glu();
    choices_.gate_bias = KTX_TRY(gate_up.vector(2, expert_bias_[0]));
    choices_.up_bias = KTX_TRY(gate_up.vector(3, expert_bias_[1]));
    choices_.x = gate_up.input(0).f32();
    choices_.x_stride = gate_up.input(0).stride;
    KTX_TRY(require_whole(gate_up.output(0), "h"));
    KTX_TRY(require_whole(router.output(1), "weights"));
    choices_.h = gate_up.output(0).f32();
    choices_.h_stride = gate_up.output(0).width / gate_up.output(0).rows_per_row;
    sum_.down = KTX_TRY(down.product_weight(0));
    sum_.attrs = down.attrs<ExpertsAttrs>();
    sum_.bias = KTX_TRY(down.vector(1, expert_bias_[2]));
    sum_.ids = choices_.router.ids;
    sum_.weights = choices_.router.weights;
    sum_.h = choices_.h;
    sum_.h_stride = choices_.h_stride;
    sum_.y = down.output(0).f32();
    sum_.y_stride = down.output(0).stride;
    if (!kernels::one_choices_take(choices_) || !kernels::one_sum_takes(sum_)) return false;
    return members.launch().op == FusedOp::SharedExperts ? bind_shared(members) : true;
  }
  Status launch(const GpuShape& shape, std::byte*, int64_t) override {
    kernels::CudaOneChoicesArgs choices = choices_;
    kernels::CudaOneSumArgs sum = sum_;
    choices.router.tokens = sum.tokens = shape.tokens;
    gpu_->use();
    return kernels::launch_one_experts(choices, sum, shared_ ? &*shared_ : nullptr, gpu_->stream());
  }

 private:
  Result<bool> bind_shared(const Members& members) {
    const bool scored = members.has(StepOp::SigmoidScale);
    const CudaView h = members.of(StepOp::Glu).output(0);
    kernels::CudaOneShared& shared = shared_.emplace();
    shared.gate = KTX_TRY(members.gate().product_weight(0));
    shared.up = KTX_TRY(members.up().product_weight(0));
    shared.h = h.f32();
    shared.h_stride = h.stride;
    const CudaBind down =
        scored ? members.product_for(StepOp::SigmoidScale, 0) : members.product_for(StepOp::Add, 1);
    shared.down = KTX_TRY(down.product_weight(0));
    if (scored) {
      const CudaBind score = members.product_for(StepOp::SigmoidScale, 1);
      const kernels::CudaWeight weight = KTX_TRY(score.product_weight(0));
      shared.score_weight = reinterpret_cast<const float*>(weight.data);
      shared.score = score.output(0).f32();
      shared.score_stride = score.output(0).stride;
    }
    return kernels::one_shared_takes(choices_, sum_, shared);
  }

  kernels::CudaOneChoicesArgs choices_;
  kernels::CudaOneSumArgs sum_;
  std::optional<kernels::CudaOneShared> shared_;
  RouterVectors vectors_;
  GpuMemory ids_, places_, expert_bias_[3];
  CudaGpu* gpu_ = nullptr;
};

class RopeAttention final : public GpuStep {
 public:
  Result<bool> bind(const Members& members) {
    gpu_ = &members.gpu();
    const CudaBind attention = members.of(StepOp::Attention), store = members.of(StepOp::KvStore);
    args_ = attention_args(attention, attention.attrs<AttentionAttrs>());
    args_.sinks = KTX_TRY(attention.vector(0, sinks_));
    args_.tokens = 1;
    args_.one_token_per_sequence = true;
    if (members.launch().most_tokens > 1) one_by_one_ = KTX_TRY(members.one_by_one());
    kernels::CudaAttentionPrepare& p = args_.prepare;
    p.key = store.input(0).f32();
    p.key_stride = store.input(0).stride;
    p.value = store.input(1).f32();
    p.value_stride = store.input(1).stride;
    for (int i = 0; i < 2; ++i) {
      if (!members.has(StepOp::RmsNorm, i)) break;
      const CudaBind norm = members.of(StepOp::RmsNorm, i);
      const bool of_q = norm.output(0).f32() == args_.q;
      (of_q ? p.q_norm : p.k_norm) = KTX_TRY(norm.vector(0, norm_[i]));
      (of_q ? p.q_eps : p.k_eps) = norm.attrs<RmsNormAttrs>().eps;
      const int heads = of_q ? args_.attrs.heads : args_.attrs.kv_heads;
      if (norm.attrs<RmsNormAttrs>().groups != heads) return false;
    }
    const bool grid = members.has(StepOp::RopeGrid);
    const StepOp op = grid ? StepOp::RopeGrid : StepOp::Rope;
    const CudaBind rope = members.of(op, 0), other = members.of(op, 1);
    p.rope = rope_attrs(rope.any_attrs());
    if (grid) p.time = rope.batch().axes[static_cast<size_t>(TokenAxis::Time)];
    p.inv_freq = KTX_TRY(rope.vector(0, inv_freq_));
    return same(p.rope, rope_attrs(other.any_attrs())) &&
           KTX_TRY(other.vector(0, other_inv_freq_)) == p.inv_freq &&
           p.rope.head_dim == args_.attrs.key_dim && kernels::attention_prepares(args_);
  }
  int64_t workspace_bytes(const GpuShape& shape) const override {
    int64_t most = 0;
    for (int64_t tokens = 1; tokens <= shape.tokens; ++tokens) {
      const kernels::CudaAttentionArgs args = args_of(shape, tokens);
      if (fuses(args)) most = std::max(most, kernels::cuda_attention_workspace(args));
    }
    if (shape.tokens > 1) most = std::max(most, one_by_one_.workspace_bytes(shape));
    return most;
  }
  Status launch(const GpuShape& shape, std::byte* workspace, int64_t bytes) override {
    kernels::CudaAttentionArgs args = args_of(shape, shape.tokens);
    if (!fuses(args)) return one_by_one_.launch(shape, workspace, bytes);
    args.workspace = workspace;
    args.workspace_bytes = bytes;
    gpu_->use();
    return kernels::launch_attention(args, gpu_->stream());
  }

 private:
  // In place, and alike but for the number of heads.
  static bool same(const RopeAttrs& a, const RopeAttrs& b) {
    return a.head_dim == b.head_dim && a.rotary_begin == b.rotary_begin &&
           a.rotary_dim == b.rotary_dim && a.interleaved == b.interleaved && a.mscale == b.mscale &&
           a.y_head_dim == a.head_dim && b.y_head_dim == b.head_dim &&
           a.y_begin == a.rotary_begin && b.y_begin == b.rotary_begin;
  }
  // Several tokens where it is quicker: the other kernel of one token does what precedes attention
  // in every block of a sequence again (16 sequences of 2048 tokens: 2 % slower).
  static bool fuses(const kernels::CudaAttentionArgs& args) {
    return args.tokens == 1 || kernels::attention_decodes(args);
  }
  kernels::CudaAttentionArgs args_of(const GpuShape& shape, int64_t tokens) const {
    kernels::CudaAttentionArgs args = args_;
    args.max_positions = shape.max_positions;
    args.tokens = tokens;
    args.one_token_per_sequence = tokens == 1 || shape.one_token_each;
    return args;
  }
  kernels::CudaAttentionArgs args_;
  OneByOne one_by_one_;
  GpuMemory norm_[2], inv_freq_, other_inv_freq_, sinks_;
  CudaGpu* gpu_ = nullptr;
};

}  // namespace

template <>
Result<std::unique_ptr<GpuStep>> make_fused<kernels::GpuKernel::ProductsGemv>(
    const FusedMembers& members) {
  return make_fused_step<Products>(members);
}
template <>
Result<std::unique_ptr<GpuStep>> make_fused<kernels::GpuKernel::GateUpGemv>(
    const FusedMembers& members) {
  return make_fused_step<GateUp>(members);
}
template <>
Result<std::unique_ptr<GpuStep>> make_fused<kernels::GpuKernel::RouterGemv>(
    const FusedMembers& members) {
  return make_fused_step<RouterProduct>(members);
}
template <>
Result<std::unique_ptr<GpuStep>> make_fused<kernels::GpuKernel::ExpertsGemv>(
    const FusedMembers& members) {
  return make_fused_step<Experts>(members);
}
template <>
Result<std::unique_ptr<GpuStep>> make_fused<kernels::GpuKernel::SharedExpertsGemv>(
    const FusedMembers& members) {
  return make_fused_step<Experts>(members);
}
template <>
Result<std::unique_ptr<GpuStep>> make_fused<kernels::GpuKernel::RopeAttention>(
    const FusedMembers& members) {
  return make_fused_step<RopeAttention>(members);
}

}  // namespace ktx::runtime

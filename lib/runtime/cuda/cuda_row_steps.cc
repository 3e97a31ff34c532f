// embed, given rows, norms, rope, pool_rows, router and the row ops on a GPU: one launch over the
// rows.
#include <algorithm>

#include "kernels/cuda/experts/cuda_experts.h"
#include "kernels/cuda/rows/cuda_rows.h"
#include "lib/ops/rope_in_place.h"
#include "lib/plan/most_chunk.h"
#include "lib/program/joint_experts.h"
#include "lib/runtime/cuda/cuda_steps.h"
#include "lib/runtime/cuda/fused_members.h"
#include "lib/runtime/engine/expert_table.h"

namespace ktx::runtime {
namespace {

// Args with the number of rows in `tokens`.
template <class Args, Status (*Launch)(const Args&, kernels::CudaStream)>
class RowsStep : public GpuStep {
 public:
  Status launch(const GpuShape& shape, std::byte*, int64_t) override {
    Args args = args_;
    args.tokens = shape.rows(rows_);
    gpu_->use();
    return Launch(args, gpu_->stream());
  }

 protected:
  void begin(const CudaBind& context, RowKind rows) {
    gpu_ = &context.gpu();
    rows_ = rows;
  }
  Args args_;
  RowKind rows_ = RowKind::Token;
  CudaGpu* gpu_ = nullptr;
};

struct Embed : RowsStep<kernels::CudaEmbedArgs, kernels::launch_embed> {
  Status bind(const CudaBind& context) {
    const CudaView y = context.output(0);
    begin(context, y.rows);
    args_.table = KTX_TRY(context.weight(0));
    if (!kernels::cuda_embed_takes(args_.table.dtype, args_.table.layout)) {
      return Error{
          "no GPU kernel reads a table of this format; put the embedding on the CPU by a "
          "rule"};
    }
    args_.ids = context.batch().ids;
    args_.y = y.f32();
    args_.y_stride = y.stride;
    return {};
  }
};

// The positions of a pass are the numbers of rows; or all numbers are one, for the tokens of the
// largest pass.
struct EmbedRow final : Embed {
  static constexpr size_t kMostTokens = plan::kMostChunk;
  Status bind(const CudaBind& context) {
    KTX_TRY(Embed::bind(context));
    const int32_t row = context.attrs<EmbedRowAttrs>().row;
    args_.ids = context.batch().position;
    if (row < 0) return {};
    const std::vector<int32_t> rows(kMostTokens, row);
    rows_ids_ = KTX_TRY(gpu_->allocate(kMostTokens * sizeof(int32_t), "rows"));
    KTX_TRY(gpu_->upload(rows_ids_.data(), reinterpret_cast<const std::byte*>(rows.data()),
                         kMostTokens * sizeof(int32_t)));
    KTX_TRY(gpu_->finish());
    args_.ids = reinterpret_cast<const int32_t*>(rows_ids_.data());
    return {};
  }
  GpuMemory rows_ids_;
};

// The places of patches in their image (embed_grid).
struct EmbedGrid final : RowsStep<kernels::CudaEmbedGridArgs, kernels::launch_embed_grid> {
  Status bind(const CudaBind& context) {
    const CudaView y = context.output(0);
    const GpuBatch& batch = context.batch();
    begin(context, y.rows);
    args_.table = KTX_TRY(context.weight(0));
    args_.side = context.attrs<EmbedGridAttrs>().side;
    args_.line = batch.axes[static_cast<size_t>(TokenAxis::Line)];
    args_.column = batch.axes[static_cast<size_t>(TokenAxis::Column)];
    args_.grid = batch.grid;
    args_.y = y.f32();
    args_.y_stride = y.stride;
    return {};
  }
};

// The rows that came with the pass: of all tokens, or parts of those of images.
struct GivenRows final : RowsStep<kernels::CudaGivenRowsArgs, kernels::launch_given_rows> {
  Status bind(const CudaBind& context) {
    const CudaView y = context.output(0);
    const GpuBatch& batch = context.batch();
    begin(context, y.rows);
    int64_t part = 0;
    if (context.op() == StepOp::GivenRows) {
      part = context.attrs<GivenRowsAttrs>().part;
      args_.row = batch.given_row;
      if (context.input(0).data != y.data) return Error{"the rows of images are not put in place"};
    }
    if (batch.given_width < (part + 1) * y.width) {
      return Error{"rows of more elements than come with tokens"};
    }
    args_.rows = batch.given + part * y.width;
    args_.row_stride = batch.given_width;
    args_.y = y.f32();
    args_.y_stride = y.stride;
    args_.width = y.width;
    args_.adds = part > 0;
    return {};
  }
};

struct PoolRows final : RowsStep<kernels::CudaPoolRowsArgs, kernels::launch_pool_rows> {
  Status bind(const CudaBind& context) {
    const CudaView x = context.input(0), y = context.output(0);
    begin(context, y.rows);
    args_.x = x.f32();
    args_.x_stride = x.stride;
    args_.width = x.width;
    args_.y = y.f32();
    args_.y_stride = y.stride;
    args_.first = context.batch().output_rows;
    args_.grid = context.batch().grid;
    args_.attrs = context.attrs<PoolRowsAttrs>();
    return {};
  }
};

// A norm but for its bias.
template <class Args, Status (*Launch)(const Args&, kernels::CudaStream)>
struct NormStep : RowsStep<Args, Launch> {
  Status bind(const CudaBind& context) {
    const CudaView x = context.input(0), y = context.output(0);
    this->begin(context, y.rows);
    Args& args = this->args_;
    args.x = x.f32();
    args.x_stride = x.stride;
    const kernels::CudaWeight weight = KTX_TRY(context.weight(0));
    args.weight = KTX_TRY(context.vector(0, weight_));
    args.weight_step = weight.rows > 1 ? weight.cols : 0;
    args.y = y.f32();
    args.y_stride = y.stride;
    args.width = y.width;
    args.attrs = context.attrs<decltype(args.attrs)>();
    return {};
  }
  GpuMemory weight_;
};

using RmsNorm = NormStep<kernels::CudaRmsNormArgs, kernels::launch_rms_norm>;

struct LayerNorm final : NormStep<kernels::CudaLayerNormArgs, kernels::launch_layer_norm> {
  Status bind(const CudaBind& context) {
    KTX_TRY(NormStep::bind(context));
    args_.bias = KTX_TRY(context.vector(1, bias_));
    return {};
  }
  GpuMemory bias_;
};

// The fused op norm_add: the norm, and what it is added to.
struct NormAdd final : RowsStep<kernels::CudaRmsNormArgs, kernels::launch_rms_norm> {
  Result<bool> bind(const FusedMembers& members) {
    const CudaBind norm = members.of(StepOp::RmsNorm), add = members.of(StepOp::Add);
    const CudaView x = norm.input(0), n = norm.output(0), y = add.output(0);
    const CudaView residual = add.input(add.input(0).data == n.data ? 1 : 0);
    begin(norm, y.rows);
    args_.x = x.f32();
    args_.x_stride = x.stride;
    args_.weight = KTX_TRY(norm.vector(0, weight_));
    args_.residual = residual.f32();
    args_.residual_stride = residual.stride;
    args_.y = y.f32();
    args_.y_stride = y.stride;
    args_.width = y.width;
    args_.attrs = norm.attrs<RmsNormAttrs>();
    return true;
  }
  GpuMemory weight_;
};

struct Rope : RowsStep<kernels::CudaRopeArgs, kernels::launch_rope> {
  Status bind(const CudaBind& context) {
    args_.position[0] = context.batch().position;
    return bind_to(context, context.attrs<RopeAttrs>());
  }

 protected:
  Status bind_to(const CudaBind& context, const RopeAttrs& attrs) {
    const CudaView x = context.input(0), y = context.output(0);
    begin(context, RowKind::Token);
    args_.x = x.f32();
    args_.x_stride = x.stride;
    args_.y = y.f32();
    args_.y_stride = y.stride;
    args_.inv_freq = KTX_TRY(context.vector(0, inv_freq_));
    args_.attrs = attrs;
    return {};
  }

 private:
  GpuMemory inv_freq_;
};

// In place, over the three positions of a token.
struct RopeGrid final : Rope {
  Status bind(const CudaBind& context) {
    const auto grid = context.attrs<RopeGridAttrs>();
    std::ranges::copy(context.batch().axes, args_.position);
    const int pairs = std::min(grid.rotary_dim / 2, kernels::CudaRopeArgs::kMostPairs);
    for (int i = 0; i < pairs; ++i) args_.axis[i] = static_cast<uint8_t>(grid.axis_of(i));
    return bind_to(context, rope_in_place(grid));
  }
};

// The row ops (kernels/rows/row_ops.def).
class RowOpStep final : public GpuStep {
 public:
  Status bind(const CudaBind& context) {
    const CudaView y = context.output(0);
    for (int i = 0; i < kernels::kRowsInputs; ++i) {
      const CudaView in = context.input(i);
      args_.in[i] = {in.f32(), in.stride};
    }
    if (info(context.op()).has(kReadsAnyRow)) args_.from = context.batch().output_rows;
    if (info(context.op()).has(kReadsPosition)) args_.position = context.batch().position;
    args_.y = y.f32();
    args_.y_stride = y.stride;
    args_.width = y.width;
    args_.attrs = context.any_attrs();
    if (context.op() == StepOp::HeadScale) heads_ = context.attrs<HeadScaleAttrs>().heads;
    launch_ = kernels::find_cuda_rows(context.op());
    rows_ = y.rows;
    gpu_ = &context.gpu();
    return {};
  }
  Status launch(const GpuShape& shape, std::byte*, int64_t) override {
    gpu_->use();
    if (heads_ > 1) return launch_heads(shape.rows(rows_));
    kernels::RowsArgs args = args_;
    args.token_end = shape.rows(rows_);
    return launch_(args, gpu_->stream());
  }

 private:
  // As many tokens at a time as a launch has rows for.
  Status launch_heads(int64_t tokens) {
    constexpr int64_t kMostRows = 65535;
    const int64_t each = kMostRows / heads_;
    if (each == 0) return Error{"more heads than a GPU's launch has rows"};
    for (int64_t begin = 0; begin < tokens; begin += each) {
      kernels::RowsArgs args = args_;
      args.token_begin = begin;
      args.token_end = std::min(begin + each, tokens);
      kernels::make_heads_rows(args, heads_);
      KTX_TRY(launch_(args, gpu_->stream()));
    }
    return {};
  }
  kernels::RowsArgs args_;
  int32_t heads_ = 1;  // of head_scale
  kernels::LaunchRows launch_ = nullptr;
  RowKind rows_ = RowKind::Token;
  CudaGpu* gpu_ = nullptr;
};

struct Router final : RowsStep<kernels::CudaRouterArgs, kernels::launch_router> {
  Status bind(const CudaBind& context) {
    const CudaView ids = context.output(0), weights = context.output(1);
    begin(context, RowKind::Token);
    KTX_TRY(require_whole(ids, "ids"));
    KTX_TRY(require_whole(weights, "weights"));
    args_ = KTX_TRY(router_args(context, vectors_));
    args_.ids = ids.i32();
    args_.weights = weights.f32();
    return {};
  }
  RouterVectors vectors_;
};

struct GroupExperts final : RowsStep<kernels::CudaGroupExpertsArgs, kernels::launch_group_experts> {
  Status bind(const CudaBind& context) {
    begin(context, RowKind::Token);
    KTX_TRY(require_whole(context.input(0), "ids"));
    KTX_TRY(require_whole(context.output(0), "order"));
    args_.ids = context.input(0).i32();
    args_.attrs = context.attrs<GroupExpertsAttrs>();
    streamed_ = context.streamed();
    if (args_.attrs.experts > kernels::kCudaMaxExperts) {
      return Error{"more experts than a GPU sorts; put the experts on the CPU by a rule"};
    }
    args_.counts = context.expert_counts();
    args_.places = KTX_TRY(context.vector(0, places_));
    if (args_.places) args_.routed = static_cast<int32_t>(KTX_TRY(context.weight(0)).cols);
    args_.order = context.output(0).i32();
    args_.offsets = context.output(1).i32();
    return {};
  }
  Status launch(const GpuShape& shape, std::byte* workspace, int64_t bytes) override {
    if (streamed_) {
      args_.end = program::experts_of_gpu(args_.attrs.experts, shape.tokens, shape.joint_tokens);
    }
    return RowsStep::launch(shape, workspace, bytes);
  }
  GpuMemory places_;
  bool streamed_ = false;
};

}  // namespace

Result<kernels::CudaRouterArgs> router_args(const CudaBind& router, RouterVectors& keep) {
  kernels::CudaRouterArgs args;
  args.attrs = router.attrs<RouterAttrs>();
  if (args.attrs.experts > kernels::kCudaMaxExperts || args.attrs.top_k > kernels::kCudaMaxTopK) {
    return Error{"more experts than a GPU router supports; put the router on the CPU by a rule"};
  }
  args.logits = router.input(0).f32();
  args.logits_stride = router.input(0).stride;
  args.bias = KTX_TRY(router.vector(0, keep.bias));
  args.factors = KTX_TRY(router.vector(1, keep.factors));
  args.position = router.batch().position;
  if (!router.has_weight(2)) return args;
  const kernels::CudaWeight table = KTX_TRY(router.weight(2));
  const auto bytes = router.weight_in_plan(2);
  const auto numbers = static_cast<size_t>(table.rows * table.cols);
  KTX_TRY(
      check_expert_table({reinterpret_cast<const int32_t*>(bytes.data()), numbers}, args.attrs));
  args.table = reinterpret_cast<const int32_t*>(table.data);
  args.table_rows = table.rows;
  args.token_ids = router.batch().ids;
  return args;
}

const MakeCudaStep make_cuda_embed = make_bound<Embed>;
const MakeCudaStep make_cuda_embed_row = make_bound<EmbedRow>;
const MakeCudaStep make_cuda_rms_norm = make_bound<RmsNorm>;
const MakeCudaStep make_cuda_layer_norm = make_bound<LayerNorm>;
const MakeCudaStep make_cuda_embed_grid = make_bound<EmbedGrid>;
const MakeCudaStep make_cuda_given_hidden = make_bound<GivenRows>;
const MakeCudaStep make_cuda_given_rows = make_bound<GivenRows>;
const MakeCudaStep make_cuda_pool_rows = make_bound<PoolRows>;
const MakeCudaStep make_cuda_rope = make_bound<Rope>;
const MakeCudaStep make_cuda_rope_grid = make_bound<RopeGrid>;
const MakeCudaStep make_cuda_router = make_bound<Router>;
const MakeCudaStep make_cuda_group_experts = make_bound<GroupExperts>;
const MakeCudaStep make_cuda_rows = make_bound<RowOpStep>;

template <>
Result<std::unique_ptr<GpuStep>> make_fused<kernels::GpuKernel::NormAdd>(
    const FusedMembers& members) {
  return make_fused_step<NormAdd>(members);
}

}  // namespace ktx::runtime

// The find functions of all ops, expanded from kernels.def and rows/row_ops.def.
#include "kernels/kernel_table.h"

#include <type_traits>

#include "kernels/attention/attention.h"
#include "kernels/attention/block_scores.h"
#include "kernels/attention/compress.h"
#include "kernels/attention/position_scores.h"
#include "kernels/built_for.h"
#include "kernels/delta_net/delta_net.h"
#include "kernels/embed/embed.h"
#include "kernels/embed/embed_grid.h"
#include "kernels/norm/norm.h"
#include "kernels/norm/row_statistics.h"
#include "kernels/quantize/quantize.h"
#include "kernels/rope/rope.h"
#include "kernels/rope/rope_grid.h"
#include "kernels/router/router.h"
#include "kernels/rows/pool_rows.h"
#include "kernels/rows/rows.h"
#include "kernels/state_space/selective_scan.h"
#include "kernels/state_space/state_space.h"
#include "kernels/streams/residual_streams.h"

namespace ktx::kernels {

#define KTX_KERNEL(Op, family, isa, function) void function(const Op##Args& args);
#include "kernels/kernels.def"
#undef KTX_KERNEL
template <StepOp op>
void rows_scalar(const RowsArgs& args);  // of the ops in row_ops.def

namespace {

// All rows, each with the argument type of its op; find() keeps those of one op.
template <class Args>
struct Rows {
  KernelRow<void (*)(const Args&)> rows[32];
  size_t count = 0;

  template <class Other>
  constexpr void add(std::string_view family, Isa isa, void (*run)(const Other&)) {
    if constexpr (std::is_same_v<Args, Other>) rows[count++] = {family, isa, run};
  }
};

template <class Args>
Result<void (*)(const Args&)> find(std::string_view family, Isa isa) {
  static constexpr Rows<Args> kRows = [] {
    Rows<Args> all{};
#define KTX_KERNEL(Op, family, isa, function) KTX_BUILT(isa, all.add(family, Isa::isa, function);)
#include "kernels/kernels.def"
#undef KTX_KERNEL
#define KTX_ROW_OP(op, family, arithmetic, sentence) \
  all.add(family, Isa::Scalar, rows_scalar<StepOp::op>);
#include "kernels/rows/row_ops.def"
#undef KTX_ROW_OP
    return all;
  }();
  return pick_kernel<void (*)(const Args&)>({kRows.rows, kRows.count}, family, isa);
}

}  // namespace

Result<EmbedFn> find_embed(std::string_view family, Isa isa) {
  return find<EmbedArgs>(family, isa);
}
Result<EmbedGridFn> find_embed_grid(std::string_view family, Isa isa) {
  return find<EmbedGridArgs>(family, isa);
}
Result<RmsNormFn> find_rms_norm(std::string_view family, Isa isa) {
  return find<RmsNormArgs>(family, isa);
}
Result<LayerNormFn> find_layer_norm(std::string_view family, Isa isa) {
  return find<LayerNormArgs>(family, isa);
}
Result<MatchRmsFn> find_match_rms(std::string_view family, Isa isa) {
  return find<MatchRmsArgs>(family, isa);
}
Result<GaussianTopKFn> find_gaussian_topk(std::string_view family, Isa isa) {
  return find<GaussianTopKArgs>(family, isa);
}
Result<PoolRowsFn> find_pool_rows(std::string_view family, Isa isa) {
  return find<PoolRowsArgs>(family, isa);
}
Result<QuantizeFn> find_quantize(std::string_view family, Isa isa) {
  return find<QuantizeArgs>(family, isa);
}
Result<RopeFn> find_rope(std::string_view family, Isa isa) {
  return find<RopeArgs>(family, isa);
}
Result<RopeGridFn> find_rope_grid(std::string_view family, Isa isa) {
  return find<RopeGridArgs>(family, isa);
}
Result<KvStoreFn> find_kv_store(std::string_view family, Isa isa) {
  return find<KvStoreArgs>(family, isa);
}
Result<AttentionFn> find_attention(std::string_view family, Isa isa) {
  return find<AttentionArgs>(family, isa);
}
Result<PositionScoresFn> find_position_scores(std::string_view family, Isa isa) {
  return find<PositionScoresArgs>(family, isa);
}
Result<BlockScoresFn> find_block_scores(std::string_view family, Isa isa) {
  return find<BlockScoresArgs>(family, isa);
}
Result<CompressFn> find_compress(std::string_view family, Isa isa) {
  return find<CompressArgs>(family, isa);
}
Result<StreamWeightsFn> find_stream_weights(std::string_view family, Isa isa) {
  return find<StreamWeightsArgs>(family, isa);
}
Result<AltUpWeightsFn> find_altup_weights(std::string_view family, Isa isa) {
  return find<AltUpWeightsArgs>(family, isa);
}
Result<CollapseStreamsFn> find_collapse_streams(std::string_view family, Isa isa) {
  return find<CollapseStreamsArgs>(family, isa);
}
Result<DotStreamsFn> find_dot_streams(std::string_view family, Isa isa) {
  return find<DotStreamsArgs>(family, isa);
}
Result<MixStreamsFn> find_mix_streams(std::string_view family, Isa isa) {
  return find<MixStreamsArgs>(family, isa);
}
Result<AttendStreamsFn> find_attend_streams(std::string_view family, Isa isa) {
  return find<AttendStreamsArgs>(family, isa);
}
Result<RowsFn> find_rows(std::string_view family, Isa isa) {
  return find<RowsArgs>(family, isa);
}
Result<RouterFn> find_router(std::string_view family, Isa isa) {
  return find<RouterArgs>(family, isa);
}
Result<CausalConvFn> find_causal_conv(std::string_view family, Isa isa) {
  return find<CausalConvArgs>(family, isa);
}
Result<DeltaRuleFn> find_delta_rule(std::string_view family, Isa isa) {
  return find<DeltaRuleArgs>(family, isa);
}
Result<SelectiveScanFn> find_selective_scan(std::string_view family, Isa isa) {
  return find<SelectiveScanArgs>(family, isa);
}
Result<StateSpaceFn> find_state_space(std::string_view family, Isa isa) {
  return find<StateSpaceArgs>(family, isa);
}
Result<GroupExpertsFn> find_group_experts(std::string_view family, Isa isa) {
  return find<GroupExpertsArgs>(family, isa);
}
Result<SumExpertsFn> find_sum_experts(std::string_view family, Isa isa) {
  return find<SumExpertsArgs>(family, isa);
}

}  // namespace ktx::kernels

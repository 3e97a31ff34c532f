// rms_norm and layer_norm; match_rms and gaussian_topk.
#include "kernels/norm/norm.h"

#include "kernels/norm/row_statistics.h"
#include "lib/runtime/cpu/ops/cpu_ops.h"
#include "lib/runtime/cpu/ops/row_step.h"
#include "lib/runtime/cpu/ops/small_weight.h"

namespace ktx::runtime {
namespace {

// A norm but for its bias.
template <class Args, class Fn>
struct NormStep : RowStep<Args, Fn> {
  Status bind_weight(const BindContext& context) {
    const BoundWeight weight = KTX_TRY(context.weight(0));
    weight_ = KTX_TRY(SmallWeight::make(weight));
    Args& args = this->args_;
    point_to(context.input(0), args.x, args.x_stride);
    args.weight = weight_.data();
    args.weight_step = weight.matrix.rows > 1 ? weight.matrix.cols : 0;
    this->weight_bytes_ = weight_.bytes();
    return {};
  }
  SmallWeight weight_;
};

struct RmsNormStep final : NormStep<kernels::RmsNormArgs, kernels::RmsNormFn> {
  Status bind(const BindContext& context) {
    KTX_TRY(bind_weight(context));
    args_.attrs = context.attrs<RmsNormAttrs>();
    return bind_output(context, kernels::find_rms_norm);
  }
};

struct LayerNormStep final : NormStep<kernels::LayerNormArgs, kernels::LayerNormFn> {
  Status bind(const BindContext& context) {
    KTX_TRY(bind_weight(context));
    bias_ = KTX_TRY(SmallWeight::make(KTX_TRY(context.optional_weight(1))));
    args_.bias = bias_.data();
    args_.attrs = context.attrs<LayerNormAttrs>();
    weight_bytes_ += bias_.bytes();
    return bind_output(context, kernels::find_layer_norm);
  }
  SmallWeight bias_;
};

struct MatchRmsStep final : RowStep<kernels::MatchRmsArgs, kernels::MatchRmsFn> {
  Status bind(const BindContext& context) {
    point_to(context.input(0), args_.x, args_.x_stride);
    point_to(context.input(1), args_.like, args_.like_stride);
    args_.like_width = context.input(1).width;
    args_.attrs = context.attrs<MatchRmsAttrs>();
    return bind_output(context, kernels::find_match_rms);
  }
};

struct GaussianTopKStep final : RowStep<kernels::GaussianTopKArgs, kernels::GaussianTopKFn> {
  Status bind(const BindContext& context) {
    point_to(context.input(0), args_.x, args_.x_stride);
    args_.attrs = context.attrs<GaussianTopKAttrs>();
    return bind_output(context, kernels::find_gaussian_topk);
  }
};

}  // namespace

const MakeStep make_rms_norm = make_step<RmsNormStep>;
const MakeStep make_layer_norm = make_step<LayerNormStep>;
const MakeStep make_match_rms = make_step<MatchRmsStep>;
const MakeStep make_gaussian_topk = make_step<GaussianTopKStep>;

}  // namespace ktx::runtime

// stream_weights, collapse_streams and mix_streams: hyper-connections; altup_weights;
// attend_streams; dot_streams.
#include "kernels/streams/residual_streams.h"

#include "lib/runtime/cpu/ops/cpu_ops.h"
#include "lib/runtime/cpu/ops/row_step.h"
#include "lib/runtime/cpu/ops/small_weight.h"

namespace ktx::runtime {
namespace {

struct StreamWeightsStep final : RowStep<kernels::StreamWeightsArgs, kernels::StreamWeightsFn> {
  Status bind(const BindContext& context) {
    scale_ = KTX_TRY(SmallWeight::make(KTX_TRY(context.weight(0))));
    base_ = KTX_TRY(SmallWeight::make(KTX_TRY(context.weight(1))));
    point_to(context.input(0), args_.mixes, args_.mixes_stride);
    args_.scale = scale_.data();
    args_.base = base_.data();
    args_.attrs = context.attrs<StreamWeightsAttrs>();
    weight_bytes_ = scale_.bytes() + base_.bytes();
    KTX_TRY(bind_output(context, kernels::find_stream_weights));
    // (Each number is divided some times.)
    split_.grain = rows_per_item(args_.width * (2 * args_.attrs.iterations + 8));
    return {};
  }
  SmallWeight scale_, base_;
};

struct AltUpWeightsStep final : RowStep<kernels::AltUpWeightsArgs, kernels::AltUpWeightsFn> {
  Status bind(const BindContext& context) {
    point_to(context.input(0), args_.coefs, args_.coefs_stride);
    args_.attrs = context.attrs<AltUpWeightsAttrs>();
    return bind_output(context, kernels::find_altup_weights);
  }
};

struct CollapseStreamsStep final
    : RowStep<kernels::CollapseStreamsArgs, kernels::CollapseStreamsFn> {
  Status bind(const BindContext& context) {
    point_to(context.input(0), args_.x, args_.x_stride);
    point_to(context.input(1), args_.weights, args_.weights_stride);
    args_.streams = static_cast<int32_t>(context.input(1).width);
    KTX_TRY(bind_output(context, kernels::find_collapse_streams));
    split_.grain = rows_per_item(context.input(0).width);
    return {};
  }
};

struct MixStreamsStep final : RowStep<kernels::MixStreamsArgs, kernels::MixStreamsFn> {
  Status bind(const BindContext& context) {
    point_to(context.input(0), args_.x, args_.x_stride);
    point_to(context.input(1), args_.part, args_.part_stride);
    point_to(context.input(2), args_.weights, args_.weights_stride);
    args_.streams = static_cast<int32_t>(context.input(0).width / context.input(1).width);
    args_.keeps = context.input(2).width == args_.streams;
    return bind_output(context, kernels::find_mix_streams);
  }
};

struct DotStreamsStep final : RowStep<kernels::DotStreamsArgs, kernels::DotStreamsFn> {
  Status bind(const BindContext& context) {
    point_to(context.input(0), args_.a, args_.a_stride);
    point_to(context.input(1), args_.b, args_.b_stride);
    args_.factor = context.attrs<ScaleAttrs>().factor;
    args_.row_width = context.input(0).width / context.output(0).width;
    KTX_TRY(bind_output(context, kernels::find_dot_streams));
    split_.grain = rows_per_item(context.input(0).width);
    return {};
  }
};

struct AttendStreamsStep final : RowStep<kernels::AttendStreamsArgs, kernels::AttendStreamsFn> {
  Status bind(const BindContext& context) {
    score_ = KTX_TRY(SmallWeight::make(KTX_TRY(context.weight(0))));
    args_.score = score_.data();
    args_.streams = static_cast<int32_t>(context.step.inputs.size());
    for (int32_t s = 0; s < args_.streams; ++s) {
      point_to(context.input(s), args_.x[s], args_.x_stride[s]);
    }
    args_.attrs = context.attrs<AttendStreamsAttrs>();
    weight_bytes_ = score_.bytes();
    KTX_TRY(bind_output(context, kernels::find_attend_streams));
    split_.grain = rows_per_item(args_.width * args_.streams);
    return {};
  }
  SmallWeight score_;
};

}  // namespace

const MakeStep make_stream_weights = make_step<StreamWeightsStep>;
const MakeStep make_altup_weights = make_step<AltUpWeightsStep>;
const MakeStep make_collapse_streams = make_step<CollapseStreamsStep>;
const MakeStep make_mix_streams = make_step<MixStreamsStep>;
const MakeStep make_dot_streams = make_step<DotStreamsStep>;
const MakeStep make_attend_streams = make_step<AttendStreamsStep>;

}  // namespace ktx::runtime

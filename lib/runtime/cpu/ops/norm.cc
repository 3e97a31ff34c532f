// rms_norm and layer_norm.
#include "kernels/norm/norm.h"

#include "lib/runtime/cpu/ops/cpu_ops.h"
#include "lib/runtime/cpu/ops/row_step.h"
#include "lib/runtime/cpu/ops/small_weight.h"

namespace ktx::runtime {
namespace {

struct RmsNormStep final : RowStep<kernels::RmsNormArgs, kernels::RmsNormFn> {
  Status bind(const BindContext& context) {
    weight_ = KTX_TRY(SmallWeight::make(KTX_TRY(context.weight(0))));
    point_to(context.input(0), args_.x, args_.x_stride);
    args_.weight = weight_.data();
    args_.attrs = context.attrs<RmsNormAttrs>();
    weight_bytes_ = weight_.bytes();
    return bind_output(context, kernels::find_rms_norm);
  }
  SmallWeight weight_;
};

struct LayerNormStep final : RowStep<kernels::LayerNormArgs, kernels::LayerNormFn> {
  Status bind(const BindContext& context) {
    const BoundWeight weight = KTX_TRY(context.weight(0));
    weight_ = KTX_TRY(SmallWeight::make(weight));
    bias_ = KTX_TRY(SmallWeight::make(KTX_TRY(context.optional_weight(1))));
    point_to(context.input(0), args_.x, args_.x_stride);
    args_.weight = weight_.data();
    args_.weight_step = weight.matrix.rows > 1 ? weight.matrix.cols : 0;
    args_.bias = bias_.data();
    args_.attrs = context.attrs<LayerNormAttrs>();
    weight_bytes_ = weight_.bytes() + bias_.bytes();
    return bind_output(context, kernels::find_layer_norm);
  }
  SmallWeight weight_, bias_;
};

}  // namespace

Result<std::unique_ptr<CpuStep>> make_rms_norm(const BindContext& context) {
  return make_step<RmsNormStep>(context);
}

Result<std::unique_ptr<CpuStep>> make_layer_norm(const BindContext& context) {
  return make_step<LayerNormStep>(context);
}

}  // namespace ktx::runtime

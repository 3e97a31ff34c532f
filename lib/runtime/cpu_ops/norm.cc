// rms_norm.
#include "kernels/norm/norm.h"

#include "lib/runtime/cpu_ops/cpu_ops.h"
#include "lib/runtime/cpu_ops/row_step.h"
#include "lib/runtime/cpu_ops/small_weight.h"

namespace ktx::runtime {
namespace {

struct RmsNormStep final : RowStep<kernels::RmsNormArgs, kernels::RmsNormFn> {
  Status bind(const BindContext& context) {
    const BoundView x = context.input(0), y = context.output(0);
    weight_ = KTX_TRY(SmallWeight::make(KTX_TRY(context.weight(0))));
    args_.x = x.f32();
    args_.x_stride = x.stride();
    args_.weight = weight_.data();
    args_.y = y.f32();
    args_.y_stride = y.stride();
    args_.width = y.width;
    args_.attrs = context.attrs<RmsNormAttrs>();
    rows_ = y.rows;
    split_.grain = rows_per_item(y.width);
    weight_bytes_ = weight_.bytes();
    functions_ = KTX_TRY(context.functions<kernels::RmsNormFn>(
        [&](std::string_view family) { return kernels::find_rms_norm(family, context.isa); }));
    return {};
  }
  SmallWeight weight_;
};

}  // namespace

Result<std::unique_ptr<CpuStep>> make_rms_norm(const BindContext& context) {
  return make_step<RmsNormStep>(context);
}

}  // namespace ktx::runtime

// quantize: activations to int8.
#include "kernels/quantize/quantize.h"

#include "lib/runtime/cpu_ops/cpu_ops.h"
#include "lib/runtime/cpu_ops/row_step.h"

namespace ktx::runtime {
namespace {

struct QuantizeStep final : RowStep<kernels::QuantizeArgs, kernels::QuantizeFn> {
  Status bind(const BindContext& context) {
    const BoundView x = context.input(0), xq = context.output(0);
    args_.x = x.f32();
    args_.x_stride = x.stride();
    args_.row_elems = xq.width / xq.rows_per_row;
    args_.attrs = context.attrs<QuantizeAttrs>();
    args_.xq = xq.data;
    args_.xq_stride = xq.stride_bytes;
    rows_ = xq.rows;
    split_.grain = rows_per_item(xq.width);
    functions_ = KTX_TRY(context.functions<kernels::QuantizeFn>(
        [&](std::string_view family) { return kernels::find_quantize(family, context.isa); }));
    return {};
  }
};

}  // namespace

Result<std::unique_ptr<CpuStep>> make_quantize(const BindContext& context) {
  return make_step<QuantizeStep>(context);
}

}  // namespace ktx::runtime

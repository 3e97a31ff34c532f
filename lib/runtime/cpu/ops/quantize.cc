// quantize: activations to int8 or BF16.
#include "kernels/quantize/quantize.h"

#include <fmt/format.h>

#include "kernels/kernel_id.h"
#include "lib/runtime/cpu/ops/cpu_ops.h"
#include "lib/runtime/cpu/ops/row_step.h"

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
    row_bytes_ = xq.stride_bytes / xq.rows_per_row;
    const kernels::KernelFamily* row = kernels::find_kernel_family(context.family());
    if (!row || row->input != xq.type) {
      return Error{fmt::format("kernel {} does not write values of type {}", context.family(),
                               static_cast<int>(xq.type))};
    }
    run_ = KTX_TRY(kernels::find_quantize(context.family(), context.isa));
    return {};
  }
  void run_region(const OutputRegion& region, std::byte*) override {
    kernels::QuantizeArgs args = args_;
    const int64_t inner = args_.attrs.rows_per_token;
    args.attrs.rows_per_token = 1;
    args.elem_begin = region.col_begin;
    args.elem_end = region.col_end;
    if (inner == 1 && !region.rows) {
      args.token_begin = region.begin;
      args.token_end = region.end;
      return run_(args);
    }
    args.token_end = 1;
    for (int64_t i = region.begin; i < region.end; ++i) {
      const int64_t row = region.rows ? region.rows[i] : i;
      const int64_t token = row / inner, part = row % inner;
      args.x = args_.x + token * args_.x_stride + part * args_.attrs.stride;
      args.xq = args_.xq + token * args_.xq_stride + part * row_bytes_;
      run_(args);
    }
  }

 private:
  int64_t row_bytes_ = 0;
};

}  // namespace

const MakeStep make_quantize = make_step<QuantizeStep>;

}  // namespace ktx::runtime

// swiglu, add, sigmoid_scale and gather_rows.
#include "kernels/activation/activation.h"
#include "lib/runtime/cpu_ops/cpu_ops.h"
#include "lib/runtime/cpu_ops/row_step.h"

namespace ktx::runtime {
namespace {

using namespace kernels;

// A value of several rows per row is dense, so the row step sees one long row.
struct SwigluStep final : RowStep<SwigluArgs, SwigluFn> {
  Status bind(const BindContext& context) {
    const BoundView gate = context.input(0), up = context.input(1), y = context.output(0);
    args_.gate = gate.f32();
    args_.gate_stride = gate.stride();
    args_.up = up.f32();
    args_.up_stride = up.stride();
    args_.y = y.f32();
    args_.y_stride = y.stride();
    args_.width = y.width;
    rows_ = y.rows;
    split_.grain = rows_per_item(y.width);
    functions_ = KTX_TRY(context.functions<SwigluFn>(
        [&](std::string_view family) { return find_swiglu(family, context.isa); }));
    return {};
  }
  void run_region(const OutputRegion& region, std::byte*) override {
    SwigluArgs args = args_;
    args.gate += region.col_begin;
    args.up += region.col_begin;
    args.y += region.col_begin;
    args.width = region.col_end - region.col_begin;
    args.token_begin = region.begin;
    args.token_end = region.end;
    run_(args);
  }
};

struct AddStep final : RowStep<AddArgs, AddFn> {
  Status bind(const BindContext& context) {
    const BoundView a = context.input(0), b = context.input(1), y = context.output(0);
    args_.a = a.f32();
    args_.a_stride = a.stride();
    args_.b = b.f32();
    args_.b_stride = b.stride();
    args_.y = y.f32();
    args_.y_stride = y.stride();
    args_.width = y.width;
    rows_ = y.rows;
    split_.grain = rows_per_item(y.width);
    functions_ = KTX_TRY(context.functions<AddFn>(
        [&](std::string_view family) { return find_add(family, context.isa); }));
    return {};
  }
};

struct SigmoidScaleStep final : RowStep<SigmoidScaleArgs, SigmoidScaleFn> {
  Status bind(const BindContext& context) {
    const BoundView x = context.input(0), gate = context.input(1), y = context.output(0);
    args_.x = x.f32();
    args_.x_stride = x.stride();
    args_.gate = gate.f32();
    args_.gate_stride = gate.stride();
    args_.y = y.f32();
    args_.y_stride = y.stride();
    args_.width = y.width;
    rows_ = y.rows;
    split_.grain = rows_per_item(y.width);
    functions_ = KTX_TRY(context.functions<SigmoidScaleFn>(
        [&](std::string_view family) { return find_sigmoid_scale(family, context.isa); }));
    return {};
  }
};

struct GatherRowsStep final : RowStep<GatherRowsArgs, GatherRowsFn> {
  Status bind(const BindContext& context) {
    const BoundView x = context.input(0), y = context.output(0);
    args_.x = x.f32();
    args_.x_stride = x.stride();
    args_.y = y.f32();
    args_.y_stride = y.stride();
    args_.width = y.width;
    rows_ = y.rows;
    split_.grain = rows_per_item(y.width);
    functions_ = KTX_TRY(context.functions<GatherRowsFn>(
        [&](std::string_view family) { return find_gather_rows(family, context.isa); }));
    return {};
  }
  void prepare(const Batch& batch) override { args_.rows = batch.output_rows.data(); }
};

}  // namespace

Result<std::unique_ptr<CpuStep>> make_swiglu(const BindContext& context) {
  return make_step<SwigluStep>(context);
}
Result<std::unique_ptr<CpuStep>> make_add(const BindContext& context) {
  return make_step<AddStep>(context);
}
Result<std::unique_ptr<CpuStep>> make_sigmoid_scale(const BindContext& context) {
  return make_step<SigmoidScaleStep>(context);
}
Result<std::unique_ptr<CpuStep>> make_gather_rows(const BindContext& context) {
  return make_step<GatherRowsStep>(context);
}

}  // namespace ktx::runtime

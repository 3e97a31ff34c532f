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
    point_to(context.input(0), args_.gate, args_.gate_stride);
    point_to(context.input(1), args_.up, args_.up_stride);
    return bind_output(context, find_swiglu);
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
    point_to(context.input(0), args_.a, args_.a_stride);
    point_to(context.input(1), args_.b, args_.b_stride);
    return bind_output(context, find_add);
  }
};

struct SigmoidScaleStep final : RowStep<SigmoidScaleArgs, SigmoidScaleFn> {
  Status bind(const BindContext& context) {
    point_to(context.input(0), args_.x, args_.x_stride);
    point_to(context.input(1), args_.gate, args_.gate_stride);
    return bind_output(context, find_sigmoid_scale);
  }
};

struct GatherRowsStep final : RowStep<GatherRowsArgs, GatherRowsFn> {
  Status bind(const BindContext& context) {
    point_to(context.input(0), args_.x, args_.x_stride);
    return bind_output(context, find_gather_rows);
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

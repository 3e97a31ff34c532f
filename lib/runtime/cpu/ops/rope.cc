// rope: rotary positions. rope_grid: those of tokens that have three.
#include "kernels/rope/rope.h"
#include "kernels/rope/rope_grid.h"

#include <algorithm>

#include "lib/runtime/cpu/ops/cpu_ops.h"
#include "lib/runtime/cpu/ops/row_step.h"
#include "lib/runtime/cpu/ops/small_weight.h"

namespace ktx::runtime {
namespace {

struct RopeStep final : RowStep<kernels::RopeArgs, kernels::RopeFn> {
  Status bind(const BindContext& context) {
    const BoundView x = context.input(0);
    inv_freq_ = KTX_TRY(SmallWeight::make(KTX_TRY(context.weight(0))));
    point_to(x, args_.x, args_.x_stride);
    point_to(context.output(0), args_.y, args_.y_stride);
    args_.inv_freq = inv_freq_.data();
    args_.attrs = context.attrs<RopeAttrs>();
    split_.grain = rows_per_item(x.width);
    weight_bytes_ = inv_freq_.bytes();
    run_ = KTX_TRY(kernels::find_rope(context.family(), context.isa));
    return {};
  }
  void prepare(const Batch& batch) override { args_.position = batch.position.data(); }
  void use_scratch(kernels::RopeArgs& args, std::byte* scratch) const override {
    args.scratch = reinterpret_cast<float*>(scratch);
  }
  int64_t scratch_bytes() const override {
    return int64_t{args_.attrs.rotary_dim} * static_cast<int64_t>(sizeof(float));
  }
  SmallWeight inv_freq_;
};

struct RopeGridStep final : RowStep<kernels::RopeGridArgs, kernels::RopeGridFn> {
  Status bind(const BindContext& context) {
    const BoundView y = context.output(0);
    inv_freq_ = KTX_TRY(SmallWeight::make(KTX_TRY(context.weight(0))));
    point_to(y, args_.y, args_.y_stride);
    args_.inv_freq = inv_freq_.data();
    args_.attrs = context.attrs<RopeGridAttrs>();
    split_.grain = rows_per_item(y.width);
    weight_bytes_ = inv_freq_.bytes();
    run_ = KTX_TRY(kernels::find_rope_grid(context.family(), context.isa));
    return {};
  }
  StepWork begin(const Batch& batch) override {
    const auto lacks = [&](const auto& axis) { return std::ssize(axis) < batch.tokens; };
    if (std::ranges::any_of(batch.axes, lacks)) {
      return {0, 0, "tokens without positions by line and column"};
    }
    return RowStep::begin(batch);
  }
  void prepare(const Batch& batch) override {
    for (size_t axis = 0; axis < batch.axes.size(); ++axis) {
      args_.position[axis] = batch.axes[axis].data();
    }
  }
  void use_scratch(kernels::RopeGridArgs& args, std::byte* scratch) const override {
    args.scratch = reinterpret_cast<float*>(scratch);
  }
  int64_t scratch_bytes() const override {
    return int64_t{args_.attrs.rotary_dim} * static_cast<int64_t>(sizeof(float));
  }
  SmallWeight inv_freq_;
};

}  // namespace

const MakeStep make_rope_grid = make_step<RopeGridStep>;
const MakeStep make_rope = make_step<RopeStep>;

}  // namespace ktx::runtime

// state_space: Mamba-2, a step with a state of each sequence.
#include "kernels/state_space/state_space.h"

#include "lib/runtime/cpu/ops/small_weight.h"
#include "lib/runtime/cpu/ops/state_step.h"

namespace ktx::runtime {
namespace {

class StateSpaceStep final : public StateStep {
 public:
  Status bind(const BindContext& context) {
    point_to(context.input(0), args_.x, args_.x_stride);
    point_to(context.input(1), args_.dt, args_.dt_stride);
    point_to(context.output(0), args_.y, args_.y_stride);
    args_.attrs = context.attrs<StateSpaceAttrs>();
    keep_state(context, args_.attrs);
    divide_heads(args_.attrs.heads, args_.attrs.head_dim);
    decay_ = KTX_TRY(SmallWeight::make(KTX_TRY(context.weight(0))));
    skip_ = KTX_TRY(SmallWeight::make(KTX_TRY(context.weight(1))));
    dt_bias_ = KTX_TRY(SmallWeight::make(KTX_TRY(context.weight(2))));
    args_.decay = decay_.data();
    args_.skip = skip_.data();
    args_.dt_bias = dt_bias_.data();
    weight_bytes_ = decay_.bytes() + skip_.bytes() + dt_bias_.bytes();
    run_ = KTX_TRY(kernels::find_state_space(context.family(), context.isa));
    return {};
  }

 private:
  void run_part(const StateRun& run, int64_t part) override {
    kernels::StateSpaceArgs args = args_of(args_, run);
    args.dt += run.first * args.dt_stride;
    take_columns(part, args);
    run_(args);
  }

  kernels::StateSpaceArgs args_;
  SmallWeight decay_, skip_, dt_bias_;
  kernels::StateSpaceFn run_ = nullptr;
};

}  // namespace

const MakeStep make_state_space = make_step<StateSpaceStep>;

}  // namespace ktx::runtime

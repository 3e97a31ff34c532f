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
    offset_ = plan::state_layout(context.plan, "cpu").offset(args_.attrs.state);
    decay_ = KTX_TRY(SmallWeight::make(KTX_TRY(context.weight(0))));
    skip_ = KTX_TRY(SmallWeight::make(KTX_TRY(context.weight(1))));
    dt_bias_ = KTX_TRY(SmallWeight::make(KTX_TRY(context.weight(2))));
    args_.decay = decay_.data();
    args_.skip = skip_.data();
    args_.dt_bias = dt_bias_.data();
    weight_bytes_ = decay_.bytes() + skip_.bytes() + dt_bias_.bytes();
    state_bytes_ = 4 * args_.attrs.state_floats();
    ranges_ = ceil_div(args_.attrs.head_dim, kColumns);
    parts_ = args_.attrs.heads * ranges_;
    run_ = KTX_TRY(kernels::find_state_space(context.family(), context.isa));
    return {};
  }

 private:
  static constexpr int64_t kColumns = 64;  // of an item: four vectors

  void run_part(const StateRun& run, int64_t part) override {
    kernels::StateSpaceArgs args = args_;
    args.x += run.first * args.x_stride;
    args.dt += run.first * args.dt_stride;
    args.y += run.first * args.y_stride;
    args.tokens = run.tokens;
    args.state_in = run.state_in;
    args.state_out = run.state_out;
    args.head = part / ranges_;
    args.column_begin = part % ranges_ * kColumns;
    args.column_end = std::min<int64_t>(args.attrs.head_dim, args.column_begin + kColumns);
    run_(args);
  }

  kernels::StateSpaceArgs args_;
  SmallWeight decay_, skip_, dt_bias_;
  int64_t ranges_ = 1;  // of columns, of a head
  kernels::StateSpaceFn run_ = nullptr;
};

}  // namespace

Result<std::unique_ptr<CpuStep>> make_state_space(const BindContext& context) {
  return make_step<StateSpaceStep>(context);
}

}  // namespace ktx::runtime

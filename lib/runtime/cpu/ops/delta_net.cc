// causal_conv and delta_rule: steps with a state of each sequence (cache/state_pool.h).
#include "kernels/delta_net/delta_net.h"

#include "lib/plan/state_layout.h"
#include "lib/runtime/cpu/ops/cpu_ops.h"
#include "lib/runtime/cpu/ops/row_step.h"
#include "lib/runtime/cpu/ops/small_weight.h"
#include "lib/runtime/cpu/ops/state_step.h"

namespace ktx::runtime {
namespace {

class CausalConvStep final : public StateStep {
 public:
  Status bind(const BindContext& context) {
    point_to(context.input(0), args_.x, args_.x_stride);
    point_to(context.output(0), args_.y, args_.y_stride);
    args_.attrs = context.attrs<CausalConvAttrs>();
    offset_ = plan::state_layout(context.plan, "cpu").offset(args_.attrs.state);
    const SmallWeight weight = KTX_TRY(SmallWeight::make(KTX_TRY(context.weight(0))));
    weight_bytes_ = weight.bytes();
    state_bytes_ = 4 * args_.attrs.state_floats();
    bias_ = KTX_TRY(SmallWeight::make(KTX_TRY(context.optional_weight(1))));
    args_.bias = bias_.data();
    // Channels side by side.
    const int64_t channels = args_.attrs.channels, taps = args_.attrs.taps;
    weight_.resize(static_cast<size_t>(channels * taps));
    for (int64_t c = 0; c < channels; ++c) {
      for (int64_t j = 0; j < taps; ++j) weight_[j * channels + c] = weight.data()[c * taps + j];
    }
    args_.weight = weight_.data();
    parts_ = ceil_div(channels, kChannels);
    run_ = KTX_TRY(kernels::find_causal_conv(context.family(), context.isa));
    return {};
  }

 private:
  static constexpr int64_t kChannels = 1024;  // of an item

  void run_part(const StateRun& run, int64_t part) override {
    kernels::CausalConvArgs args = args_;
    args.x += run.first * args.x_stride;
    args.y += run.first * args.y_stride;
    args.tokens = run.tokens;
    args.state_in = run.state_in;
    args.state_out = run.state_out;
    args.channel_begin = part * kChannels;
    args.channel_end = std::min<int64_t>(args.attrs.channels, args.channel_begin + kChannels);
    run_(args);
  }

  kernels::CausalConvArgs args_;
  std::vector<float> weight_;
  SmallWeight bias_;
  kernels::CausalConvFn run_ = nullptr;
};

class DeltaRuleStep final : public StateStep {
 public:
  Status bind(const BindContext& context) {
    point_to(context.input(0), args_.x, args_.x_stride);
    point_to(context.input(1), args_.b, args_.b_stride);
    if (context.step.input_count > 2 && context.input(2).data != nullptr) {
      point_to(context.input(2), args_.a, args_.a_stride);
    }
    point_to(context.output(0), args_.y, args_.y_stride);
    args_.attrs = context.attrs<DeltaRuleAttrs>();
    offset_ = plan::state_layout(context.plan, "cpu").offset(args_.attrs.state);
    decay_ = KTX_TRY(SmallWeight::make(KTX_TRY(context.weight(0))));
    dt_bias_ = KTX_TRY(SmallWeight::make(KTX_TRY(context.weight(1))));
    args_.decay = decay_.data();
    args_.dt_bias = dt_bias_.data();
    weight_bytes_ = decay_.bytes() + dt_bias_.bytes();
    state_bytes_ = 4 * args_.attrs.state_floats();
    ranges_ = ceil_div(args_.attrs.head_dim, kColumns);
    parts_ = args_.attrs.value_heads * ranges_;
    run_ = KTX_TRY(kernels::find_delta_rule(context.family(), context.isa));
    return {};
  }

 private:
  static constexpr int64_t kColumns = 64;  // of an item: four vectors

  void run_part(const StateRun& run, int64_t part) override {
    kernels::DeltaRuleArgs args = args_;
    args.x += run.first * args.x_stride;
    args.b += run.first * args.b_stride;
    if (args.a != nullptr) args.a += run.first * args.a_stride;
    args.y += run.first * args.y_stride;
    args.tokens = run.tokens;
    args.state_in = run.state_in;
    args.state_out = run.state_out;
    args.head = part / ranges_;
    args.column_begin = part % ranges_ * kColumns;
    args.column_end = std::min<int64_t>(args.attrs.head_dim, args.column_begin + kColumns);
    run_(args);
  }

  kernels::DeltaRuleArgs args_;
  SmallWeight decay_, dt_bias_;
  int64_t ranges_ = 1;  // of columns, of a head
  kernels::DeltaRuleFn run_ = nullptr;
};

}  // namespace

Result<std::unique_ptr<CpuStep>> make_causal_conv(const BindContext& context) {
  return make_step<CausalConvStep>(context);
}

Result<std::unique_ptr<CpuStep>> make_delta_rule(const BindContext& context) {
  return make_step<DeltaRuleStep>(context);
}

}  // namespace ktx::runtime

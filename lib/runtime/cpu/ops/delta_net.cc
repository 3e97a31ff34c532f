// causal_conv and delta_rule: steps with a state of each sequence (cache/state_pool.h).
#include "kernels/delta_net/delta_net.h"

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
    keep_state(context, args_.attrs);
    const SmallWeight weight = KTX_TRY(SmallWeight::make(KTX_TRY(context.weight(0))));
    weight_bytes_ = weight.bytes();
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
    kernels::CausalConvArgs args = args_of(args_, run);
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
    if (context.input(2).data != nullptr) point_to(context.input(2), args_.a, args_.a_stride);
    point_to(context.output(0), args_.y, args_.y_stride);
    args_.attrs = context.attrs<DeltaRuleAttrs>();
    keep_state(context, args_.attrs);
    divide_heads(args_.attrs.value_heads, args_.attrs.head_dim);
    decay_ = KTX_TRY(SmallWeight::make(KTX_TRY(context.weight(0))));
    dt_bias_ = KTX_TRY(SmallWeight::make(KTX_TRY(context.weight(1))));
    args_.decay = decay_.data();
    args_.dt_bias = dt_bias_.data();
    weight_bytes_ = decay_.bytes() + dt_bias_.bytes();
    run_ = KTX_TRY(kernels::find_delta_rule(context.family(), context.isa));
    return {};
  }

 private:
  void run_part(const StateRun& run, int64_t part) override {
    kernels::DeltaRuleArgs args = args_of(args_, run);
    args.b += run.first * args.b_stride;
    if (args.a != nullptr) args.a += run.first * args.a_stride;
    take_columns(part, args);
    run_(args);
  }

  kernels::DeltaRuleArgs args_;
  SmallWeight decay_, dt_bias_;
  kernels::DeltaRuleFn run_ = nullptr;
};

}  // namespace

const MakeStep make_causal_conv = make_step<CausalConvStep>;
const MakeStep make_delta_rule = make_step<DeltaRuleStep>;

}  // namespace ktx::runtime

// selective_scan: Mamba-1, a step with a state of each sequence.
#include "kernels/state_space/selective_scan.h"

#include "lib/runtime/cpu/ops/small_weight.h"
#include "lib/runtime/cpu/ops/state_step.h"

namespace ktx::runtime {
namespace {

class SelectiveScanStep final : public StateStep {
 public:
  Status bind(const BindContext& context) {
    point_to(context.input(0), args_.x, args_.x_stride);
    point_to(context.input(1), args_.dt, args_.dt_stride);
    point_to(context.input(2), args_.in_out, args_.in_out_stride);
    point_to(context.output(0), args_.y, args_.y_stride);
    args_.attrs = context.attrs<SelectiveScanAttrs>();
    keep_state(context, args_.attrs);
    parts_ = ceil_div(int64_t{args_.attrs.channels}, kColumns);
    const SmallWeight decay = KTX_TRY(SmallWeight::make(KTX_TRY(context.weight(0))));
    transpose(decay.data());
    skip_ = KTX_TRY(SmallWeight::make(KTX_TRY(context.weight(1))));
    args_.decay = decay_.data();
    args_.skip = skip_.data();
    weight_bytes_ = decay.bytes() + skip_.bytes();
    run_ = KTX_TRY(kernels::find_selective_scan(context.family(), context.isa));
    return {};
  }

 private:
  // A channel's numbers stand in a row of the weight, and in a column of what kernels read.
  void transpose(const float* decay) {
    const int64_t channels = args_.attrs.channels, rows = args_.attrs.state_dim;
    decay_.resize(static_cast<size_t>(channels * rows));
    for (int64_t c = 0; c < channels; ++c) {
      for (int64_t i = 0; i < rows; ++i) {
        decay_[static_cast<size_t>(i * channels + c)] = decay[c * rows + i];
      }
    }
  }

  void run_part(const StateRun& run, int64_t part) override {
    kernels::SelectiveScanArgs args = args_of(args_, run);
    args.dt += run.first * args.dt_stride;
    args.in_out += run.first * args.in_out_stride;
    args.channel_begin = part * kColumns;
    args.channel_end = std::min<int64_t>(args.attrs.channels, args.channel_begin + kColumns);
    run_(args);
  }

  kernels::SelectiveScanArgs args_;
  std::vector<float> decay_;
  SmallWeight skip_;
  kernels::SelectiveScanFn run_ = nullptr;
};

}  // namespace

const MakeStep make_selective_scan = make_step<SelectiveScanStep>;

}  // namespace ktx::runtime

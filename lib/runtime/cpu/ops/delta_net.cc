// causal_conv and delta_rule: steps with a state of each sequence (cache/state_pool.h).
#include "kernels/delta_net/delta_net.h"

#include "lib/plan/state_layout.h"
#include "lib/runtime/cpu/ops/cpu_ops.h"
#include "lib/runtime/cpu/ops/row_step.h"
#include "lib/runtime/cpu/ops/small_weight.h"

namespace ktx::runtime {
namespace {

// Tokens of one sequence in a pass, and its state in this step before and behind them.
struct StateRun {
  int64_t first = 0;  // row
  int64_t tokens = 0;
  const float* state_in = nullptr;  // null: zeros
  float* state_out = nullptr;
};

// Items are (sequence, part of what the op computes independently). Of one token a part is worth
// a thread; of many, too. Where states are kept within a text, its tokens are computed up to there,
// and on from there: to the same bits.
class StateStep : public CpuStep {
 public:
  StepWork begin(const Batch& batch) override {
    texts_.clear();
    for (int64_t row = 0; row < batch.tokens;) {
      const int32_t sequence = batch.sequence[row];
      texts_.push_back({row, &batch.states[sequence]});
      while (row < batch.tokens && batch.sequence[row] == sequence) ++row;
    }
    use_class(batch_class(batch.tokens));
    int64_t states = 0;  // read or written
    for (const Text& text : texts_) {
      states += std::ssize(text.states->outs) + (text.states->in != nullptr ? 1 : 0);
    }
    return {static_cast<int64_t>(texts_.size()) * parts_, weight_bytes_ + states * state_bytes_,
            nullptr};
  }
  void run(int64_t item, std::byte*) override {
    const Text& text = texts_[item / parts_];
    const float* in = text.states->in != nullptr ? text.states->in + offset_ : nullptr;
    int64_t done = 0;
    for (const StateOut& out : text.states->outs) {
      run_part({text.first + done, out.tokens - done, in, out.data + offset_}, item % parts_);
      in = out.data + offset_;
      done = out.tokens;
    }
  }

 protected:
  virtual void use_class(int kernel_class) = 0;
  virtual void run_part(const StateRun& run, int64_t part) = 0;

  int64_t offset_ = 0;  // floats, in a sequence's states
  int64_t parts_ = 1;
  int64_t weight_bytes_ = 0;
  int64_t state_bytes_ = 0;  // of a sequence in this step

 private:
  struct Text {
    int64_t first = 0;  // row
    const SequenceState* states = nullptr;
  };
  std::vector<Text> texts_;
};

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
    // Channels side by side.
    const int64_t channels = args_.attrs.channels, taps = args_.attrs.taps;
    weight_.resize(static_cast<size_t>(channels * taps));
    for (int64_t c = 0; c < channels; ++c) {
      for (int64_t j = 0; j < taps; ++j) weight_[j * channels + c] = weight.data()[c * taps + j];
    }
    args_.weight = weight_.data();
    parts_ = ceil_div(channels, kChannels);
    functions_ = KTX_TRY(context.functions<kernels::CausalConvFn>(
        [&](std::string_view family) { return kernels::find_causal_conv(family, context.isa); }));
    return {};
  }

 private:
  static constexpr int64_t kChannels = 1024;  // of an item

  void use_class(int kernel_class) override { run_ = functions_[kernel_class]; }
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
  std::array<kernels::CausalConvFn, kBatchClasses> functions_{};
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
    functions_ = KTX_TRY(context.functions<kernels::DeltaRuleFn>(
        [&](std::string_view family) { return kernels::find_delta_rule(family, context.isa); }));
    return {};
  }

 private:
  static constexpr int64_t kColumns = 64;  // of an item: four vectors

  void use_class(int kernel_class) override { run_ = functions_[kernel_class]; }
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
  std::array<kernels::DeltaRuleFn, kBatchClasses> functions_{};
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

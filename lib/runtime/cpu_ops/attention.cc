// kv_store and attention.
#include "kernels/attention/attention.h"

#include <algorithm>

#include "lib/runtime/cpu_ops/cpu_ops.h"
#include "lib/runtime/cpu_ops/row_step.h"

namespace ktx::runtime {
namespace {

void use_batch(kernels::KvView& kv, const Batch& batch) {
  kv.tables = batch.tables.data();
  kv.sequence = batch.sequence.data();
  kv.position = batch.position.data();
}

struct KvStoreStep final : RowStep<kernels::KvStoreArgs, kernels::KvStoreFn> {
  Status bind(const BindContext& context) {
    const BoundView key = context.input(0), value = context.input(1);
    args_.key = key.f32();
    args_.key_stride = key.stride();
    args_.value = value.f32();
    args_.value_stride = value.stride();
    args_.kv = context.kv_view(context.attrs<KvStoreAttrs>().slot);
    split_.grain = rows_per_item(key.width + value.width);
    functions_ = KTX_TRY(context.functions<kernels::KvStoreFn>(
        [&](std::string_view family) { return kernels::find_kv_store(family, context.isa); }));
    return {};
  }
  void prepare(const Batch& batch) override { use_batch(args_.kv, batch); }
};

// Items are (run of tokens, range of q heads).
class AttentionStep final : public CpuStep {
 public:
  Status bind(const BindContext& context) {
    const BoundView q = context.input(0), y = context.output(0);
    args_.q = q.f32();
    args_.q_stride = q.stride();
    args_.y = y.f32();
    args_.y_stride = y.stride();
    args_.attrs = context.attrs<AttentionAttrs>();
    args_.kv = context.kv_view(args_.attrs.slot);
    threads_ = context.threads;
    functions_ = KTX_TRY(context.functions<kernels::AttentionFn>(
        [&](std::string_view family) { return kernels::find_attention(family, context.isa); }));
    return {};
  }

  StepWork begin(const Batch& batch) override {
    use_batch(args_.kv, batch);
    run_ = functions_[batch_class(batch.tokens)];
    tokens_ = {batch.tokens, kernels::kAttentionTokens};
    // All heads of a KV head read its cache once: the widest range that is worth
    // making. When that leaves threads without work (few KV heads, one token),
    // ranges are halved: the cache is then read twice, by two cores.
    const int64_t group = args_.attrs.heads / args_.attrs.kv_heads;
    heads_ = {args_.attrs.heads, group};
    const auto items = [&] { return tokens_.items() * heads_.items(); };
    while (items() < 2 * threads_ && heads_.grain % 2 == 0) heads_.grain /= 2;
    if (items() < threads_) heads_.grain = 1;
    return {items(), 0, nullptr};
  }

  void run(int64_t item, std::byte* scratch) override {
    // Late tokens see the longest past: they go first.
    const int64_t run = tokens_.items() - 1 - item / heads_.items();
    kernels::AttentionArgs args = args_;
    args.token_begin = tokens_.begin(run);
    args.token_end = tokens_.end(run);
    args.head_begin = heads_.begin(item % heads_.items());
    args.head_end = heads_.end(item % heads_.items());
    args.scratch = scratch;
    run_(args);
  }

  int64_t scratch_bytes() const override { return kernels::attention_scratch_bytes(args_.attrs); }

 private:
  kernels::AttentionArgs args_;
  std::array<kernels::AttentionFn, kBatchClasses> functions_{};
  kernels::AttentionFn run_ = nullptr;
  RowSplit tokens_, heads_;
  int threads_ = 1;
};

}  // namespace

Result<std::unique_ptr<CpuStep>> make_kv_store(const BindContext& context) {
  return make_step<KvStoreStep>(context);
}

Result<std::unique_ptr<CpuStep>> make_attention(const BindContext& context) {
  return make_step<AttentionStep>(context);
}

}  // namespace ktx::runtime

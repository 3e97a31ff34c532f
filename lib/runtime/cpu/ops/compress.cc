// compress: an entry for each token that ends one, made, normed and rotated where the op says so,
// and stored.
#include "kernels/attention/compress.h"

#include <vector>

#include "kernels/attention/attention.h"
#include "kernels/norm/norm.h"
#include "kernels/rope/rope.h"
#include "lib/runtime/cpu/ops/cpu_ops.h"
#include "lib/runtime/cpu/ops/row_step.h"
#include "lib/runtime/cpu/ops/small_weight.h"

namespace ktx::runtime {
namespace {

// Items are entries.
class CompressStep final : public CpuStep {
 public:
  Status bind(const BindContext& context) {
    const auto attrs = context.attrs<CompressAttrs>();
    bias_ = KTX_TRY(SmallWeight::make(KTX_TRY(context.optional_weight(0))));
    norm_ = KTX_TRY(SmallWeight::make(KTX_TRY(context.optional_weight(1))));
    inv_freq_ = KTX_TRY(SmallWeight::make(KTX_TRY(context.optional_weight(2))));
    args_.attrs = attrs;
    args_.bias = bias_.data();
    args_.kv = context.kv_view(attrs.slot);
    kind_ = context.kv.kind_of(attrs.slot);
    entries_ = context.kv_view(attrs.entries);
    entries_.layout = kernels::entry_layout(entries_.layout, attrs.dim, attrs.every);
    entries_kind_ = context.kv.kind_of(attrs.entries);
    make_ = KTX_TRY(kernels::find_compress(context.family(), context.isa));
    normalise_ = KTX_TRY(kernels::find_rms_norm("rms_norm", context.isa));
    rotate_ = KTX_TRY(kernels::find_rope("rope", context.isa));
    store_ = KTX_TRY(kernels::find_kv_store("kv_store", context.isa));
    return {};
  }

  StepWork begin(const Batch& batch) override {
    use_batch(args_.kv, batch, kind_);
    use_batch(entries_, batch, entries_kind_);
    tokens_.clear();
    for (int64_t t = 0; t < batch.tokens; ++t) {
      if ((batch.position[t] + 1) % args_.attrs.every == 0) tokens_.push_back(t);
    }
    return {std::ssize(tokens_), 0, nullptr};
  }

  void run(int64_t item, std::byte* scratch) override {
    const CompressAttrs& attrs = args_.attrs;
    auto* const entry = reinterpret_cast<float*>(scratch);
    const int64_t token = tokens_[static_cast<size_t>(item)];
    kernels::CompressArgs args = args_;
    args.token = token;
    args.entry = entry;
    make_(args);
    const int32_t number = args_.kv.position[token] / attrs.every;
    if (norm_.data() != nullptr) normalise(entry);
    if (attrs.rotary_dim > 0) rotate(entry, number * attrs.every);

    kernels::KvStoreArgs store;
    store.key = entry;
    store.kv = entries_;
    store.kv.sequence = &args_.kv.sequence[token];
    store.kv.position = &number;
    store.token_end = 1;
    store_(store);
  }

  int64_t scratch_bytes() const override {
    return (padded() + args_.attrs.rotary_dim) * static_cast<int64_t>(sizeof(float));
  }

 private:
  int64_t padded() const { return ceil_div(args_.attrs.dim, 16) * 16; }

  void normalise(float* entry) const {
    kernels::RmsNormArgs norm;
    norm.x = norm.y = entry;
    norm.weight = norm_.data();
    norm.width = args_.attrs.dim;
    norm.attrs = {args_.attrs.eps, 1};
    norm.token_end = 1;
    normalise_(norm);
  }

  void rotate(float* entry, int32_t position) const {
    const CompressAttrs& attrs = args_.attrs;
    kernels::RopeArgs rope;
    rope.x = rope.y = entry;
    rope.inv_freq = inv_freq_.data();
    rope.position = &position;
    rope.attrs = {.head_dim = attrs.dim,
                  .rotary_begin = attrs.rotary_begin(),
                  .y_head_dim = attrs.dim,
                  .y_begin = attrs.rotary_begin(),
                  .rotary_dim = attrs.rotary_dim,
                  .interleaved = attrs.interleaved,
                  .mscale = attrs.mscale};
    rope.token_end = 1;
    rope.scratch = entry + padded();
    rotate_(rope);
  }

  kernels::CompressArgs args_;
  kernels::KvView entries_;
  SequenceKind kind_ = SequenceKind::Whole, entries_kind_ = SequenceKind::Whole;
  SmallWeight bias_, norm_, inv_freq_;
  std::vector<int64_t> tokens_;  // of the pass, that end an entry
  kernels::CompressFn make_ = nullptr;
  kernels::RmsNormFn normalise_ = nullptr;
  kernels::RopeFn rotate_ = nullptr;
  kernels::KvStoreFn store_ = nullptr;
};

}  // namespace

const MakeStep make_compress = make_step<CompressStep>;

}  // namespace ktx::runtime

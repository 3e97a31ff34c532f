// kv_store, attention, text_attention, sparse_attention, block_attention and compressed_attention.
#include "kernels/attention/attention.h"

#include <algorithm>
#include <atomic>

#include "lib/runtime/cpu/ops/cpu_ops.h"
#include "lib/runtime/cpu/ops/row_step.h"
#include "lib/runtime/cpu/ops/small_weight.h"

namespace ktx::runtime {
namespace {

struct KvStoreStep final : RowStep<kernels::KvStoreArgs, kernels::KvStoreFn> {
  Status bind(const BindContext& context) {
    const BoundView key = context.input(0), value = context.input(1);
    point_to(key, args_.key, args_.key_stride);
    point_to(value, args_.value, args_.value_stride);
    const int32_t slot = context.attrs<KvStoreAttrs>().slot;
    args_.kv = context.kv_view(slot);
    kind_ = context.kv.kind_of(slot);
    split_.grain = rows_per_item(key.width + value.width);
    run_ = KTX_TRY(kernels::find_kv_store(context.family(), context.isa));
    return {};
  }
  void prepare(const Batch& batch) override { use_batch(args_.kv, batch, kind_); }
  SequenceKind kind_ = SequenceKind::Whole;
};

int64_t span_of(int64_t position) {
  return position / kernels::kAttentionSpan;
}

// Items are (run of tokens, range of q heads); few tokens with a long past are cut
// into spans as well: (token, range of q heads, span), of which the last to be done
// merges the others.
class AttentionStep : public CpuStep {
 public:
  Status bind(const BindContext& context) {
    point_to(context.input(0), args_.q, args_.q_stride);
    point_to(context.output(0), args_.y, args_.y_stride);
    const auto op = context.step.op;
    if (op == StepOp::BlockAttention) {
      const auto attrs = context.attrs<BlockAttentionAttrs>();
      args_.attrs = whole_attention(attrs);
      args_.chosen_block = attrs.block;
      open_ = attrs.open != 0;
    } else if (op == StepOp::CompressedAttention) {
      bind_entries(context, context.attrs<CompressedAttentionAttrs>());
    } else {
      args_.attrs = context.attrs<AttentionAttrs>();
    }
    args_.kv = context.kv_view(args_.attrs.slot);
    kind_ = context.kv.kind_of(args_.attrs.slot);
    sinks_ = KTX_TRY(SmallWeight::make(KTX_TRY(context.optional_weight(0))));
    args_.sinks = sinks_.data();
    const BoundView chosen = chooses(op) ? context.input(1) : BoundView{};
    if (chosen.data != nullptr) {
      args_.chosen = chosen.i32();
      args_.chosen_stride = chosen.stride();
      const bool by_head = op == StepOp::BlockAttention && !open_;
      top_k_ = by_head ? chosen.width / args_.attrs.kv_heads : chosen.width;
      args_.chosen_each = by_head ? top_k_ : 0;
    }
    threads_ = context.threads;
    partials_ = context.partials;
    run_ = KTX_TRY(kernels::find_attention(context.family(), context.isa));
    return {};
  }

  StepWork begin(const Batch& batch) override {
    use_batch(args_.kv, batch, kind_);
    if (every_ > 0) {
      number_entries(batch);
    } else if (top_k_ > 0) {
      number_chosen(batch);
    }
    const bool ahead = whole_text_ || (batch.sees_ahead && top_k_ == 0 && every_ == 0);
    args_.text_end = ahead ? batch.text_end.data() : nullptr;
    // All heads of a KV head read its cache once: the widest range that is worth
    // making. When that leaves threads without work (few KV heads, one token),
    // ranges are halved: the cache is then read twice, by two cores.
    const int64_t group = args_.attrs.heads / args_.attrs.kv_heads;
    // (Half as many rows read the cache twice, and leave threads less to wait for.)
    const int64_t rows = batch.tokens * args_.attrs.heads;
    const int64_t most =
        kernels::kAttentionRows / (rows < 8 * threads_ * kernels::kAttentionRows ? 2 : 1);
    tokens_ = {batch.tokens, std::max<int64_t>(1, most / group)};
    heads_ = {args_.attrs.heads, group};
    spans_ = 1;
    const bool few = tokens_.items() * heads_.items() < 4 * threads_;
    if (partials_ && few && !ahead && batch.tokens <= kDecodeTokens) split_spans(batch);
    const auto items = [&] { return tokens_.items() * heads_.items() * spans_; };
    while (items() < 2 * threads_ && heads_.grain % 2 == 0) heads_.grain /= 2;
    if (items() < threads_) heads_.grain = 1;
    if (spans_ > 1) {
      for (int64_t i = 0; i < tokens_.items() * heads_.items(); ++i) {
        partials_->left[i].store(spans_, std::memory_order_relaxed);
      }
    }
    return {items(), 0, nullptr};
  }

  void run(int64_t item, std::byte* scratch) override {
    const int64_t span = item % spans_, range = item / spans_;
    // Late tokens see the longest past: they go first.
    const int64_t run = tokens_.items() - 1 - range / heads_.items();
    kernels::AttentionArgs args = args_;
    args.token_begin = tokens_.begin(run);
    args.token_end = tokens_.end(run);
    args.head_begin = heads_.begin(range % heads_.items());
    args.head_end = heads_.end(range % heads_.items());
    args.scratch = scratch;
    if (spans_ == 1) return run_(args);
    args.part = kernels::AttentionPart::OneSpan;
    args.span = first_span_ + span;
    args.first_span = first_span_;
    args.spans = spans_;
    args.partials = partials_->floats();
    // (Ranges are of one token.)
    const int64_t position = args.kv.position[args.token_begin];
    if (span_of(first_position(args_.attrs, position)) <= args.span &&
        args.span <= span_of(position)) {
      run_(args);
    }
    if (partials_->left[range].fetch_sub(1, std::memory_order_acq_rel) > 1) return;
    args.part = kernels::AttentionPart::Merge;
    run_(args);
  }

  int64_t scratch_bytes() const override { return kernels::attention_scratch_bytes(args_.attrs); }

 protected:
  // Each token sees those behind it in the pass, too.
  void see_whole_text() {
    whole_text_ = true;
    partials_ = nullptr;  // texts are whole: there are few with so few tokens
  }

 private:
  static bool chooses(StepOp op) {
    return op == StepOp::SparseAttention || op == StepOp::BlockAttention ||
           op == StepOp::CompressedAttention;
  }

  void bind_entries(const BindContext& context, const CompressedAttentionAttrs& attrs) {
    args_.attrs = whole_attention(attrs);
    every_ = attrs.every;
    positions_.window = attrs.window;
    args_.entries = context.kv_view(attrs.entries);
    args_.entries.layout = kernels::entry_layout(args_.entries.layout, attrs.dim, attrs.every);
    entries_kind_ = context.kv.kind_of(attrs.entries);
  }

  // Entries, and positions behind them, are taken by their numbers in one list.
  void number_entries(const Batch& batch) {
    const auto tokens = static_cast<size_t>(batch.tokens);
    last_chosen_.resize(tokens), entries_of_.resize(tokens), first_of_.resize(tokens);
    for (size_t t = 0; t < tokens; ++t) {
      const int64_t position = batch.position[t], first = first_position(positions_, position);
      const int64_t seen = entries_seen(every_, position);
      const int64_t entries = top_k_ > 0 ? std::min(seen, top_k_) : seen;
      entries_of_[t] = static_cast<int32_t>(entries);
      first_of_[t] = static_cast<int32_t>(first);
      last_chosen_[t] = static_cast<int32_t>(entries + position - first);
    }
    use_batch(args_.entries, batch, entries_kind_);
    args_.entries_of = entries_of_.data();
    args_.first_of = first_of_.data();
    args_.kv.position = last_chosen_.data();
  }

  // Chosen positions, and those of chosen blocks, are taken by their numbers.
  void number_chosen(const Batch& batch) {
    last_chosen_.resize(static_cast<size_t>(batch.tokens));
    const int64_t block = args_.chosen_block;
    for (int64_t t = 0; t < batch.tokens; ++t) {
      const int64_t position = batch.position[t];
      last_chosen_[t] = static_cast<int32_t>(open_ ? last_of_entries(top_k_ - 1, block, position)
                                                   : last_of_blocks(top_k_, block, position));
    }
    args_.kv.position = last_chosen_.data();
  }

  // Cuts rows into spans, where the memory for partial results allows it.
  void split_spans(const Batch& batch) {
    const int32_t* position = args_.kv.position;
    int64_t first = position[0], last = 0;
    for (int64_t t = 0; t < batch.tokens; ++t) {
      first = std::min(first, first_position(args_.attrs, position[t]));
      last = std::max<int64_t>(last, position[t]);
    }
    first_span_ = span_of(first);
    const int64_t spans = span_of(last) - first_span_ + 1;
    const int64_t floats =
        batch.tokens * args_.attrs.heads * spans * kernels::attention_partial_floats(args_.attrs);
    if (spans < 2 || floats > partials_->float_count() ||
        batch.tokens * args_.attrs.heads > static_cast<int64_t>(partials_->left.size())) {
      return;
    }
    spans_ = spans;
    tokens_.grain = 1;
  }

  kernels::AttentionArgs args_;
  bool whole_text_ = false;
  int64_t top_k_ = 0;         // chosen positions or blocks of a head; 0: all positions
  int64_t every_ = 0;         // positions of an entry; 0: there are none
  bool open_ = false;         // chosen blocks are entries, behind them the one that is not whole
  AttentionAttrs positions_;  // the window behind entries
  SequenceKind entries_kind_ = SequenceKind::Whole;
  std::vector<int32_t> last_chosen_, entries_of_, first_of_;  // by token
  SequenceKind kind_ = SequenceKind::Whole;
  kernels::AttentionFn run_ = nullptr;
  RowSplit tokens_, heads_;
  int64_t first_span_ = 0;
  int64_t spans_ = 1;  // items per run of tokens and range of heads
  SmallWeight sinks_;
  int64_t threads_ = 1;
  AttentionPartials* partials_ = nullptr;
};

struct TextAttentionStep final : AttentionStep {
  Status bind(const BindContext& context) {
    KTX_TRY(AttentionStep::bind(context));
    see_whole_text();
    return {};
  }
};

}  // namespace

const MakeStep make_kv_store = make_step<KvStoreStep>;
const MakeStep make_attention = make_step<AttentionStep>;
const MakeStep make_text_attention = make_step<TextAttentionStep>;
const MakeStep make_sparse_attention = make_step<AttentionStep>;
const MakeStep make_compressed_attention = make_step<AttentionStep>;
const MakeStep make_block_attention = make_step<AttentionStep>;

}  // namespace ktx::runtime

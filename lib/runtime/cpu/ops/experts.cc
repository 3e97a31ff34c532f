// experts_gate_up and experts_down: the products of a mixture of experts.
//
// gate_up: an item is (range of rows, chosen expert), so one token with 8 experts gives every
// thread work, and each NUMA node its rows of all of them. On one node a prompt takes an
// expert's ranges one after the other, while its tokens are in the caches. down: an item is a
// range of rows over all chosen experts, because their sum has a fixed order.
//
// The quantisation behind gate_up works in groups of 128 columns. Items of that many rows are too
// few for many threads (8 experts of 768 rows: 48 for 16 threads, which wait 10 % of their time for
// the last ones), so that a token's items are shorter and the last one of a group quantises it.
//
// Experts of a cache (experts/expert_cache.h) may still be on their way from disk: gate_up takes
// them last, one after the other, and an item waits for its own; down needs all of them.
#include "kernels/matmul/experts.h"

#include <fmt/format.h>

#include <algorithm>

#include "kernels/rows/rows.h"
#include "lib/formats/layout_size.h"
#include "lib/runtime/cpu/ops/column_groups.h"
#include "lib/runtime/cpu/ops/cpu_ops.h"
#include "lib/runtime/cpu/ops/matmul_input.h"
#include "lib/runtime/cpu/ops/row_runs.h"
#include "lib/runtime/cpu/ops/small_weight.h"
#include "lib/runtime/experts/expert_cache.h"

namespace ktx::runtime {
namespace {

using namespace kernels;

// The sorted pairs that both ops read: checked once per step, since kernels trust
// them and a damaged plan may have let another step write over them.
class Pairs {
 public:
  Status bind(const BoundView& order, const BoundView& offsets, const ExpertsAttrs& attrs,
              ExpertsArgs& args) {
    KTX_TRY(require_whole(order, "order"));
    args.top_k = attrs.top_k;
    args.experts = attrs.experts;
    args.order = order.i32();
    args.offsets = offsets.i32();
    active_.resize(attrs.experts);
    return {};
  }
  // Finds the experts with pairs; a message on nonsense.
  const char* look(const ExpertsArgs& args) {
    active_count_ = 0;
    const int64_t pairs = args.tokens * args.top_k;
    // Pairs of experts that are on another device come last.
    if (args.offsets[0] != 0 || args.offsets[args.experts] > pairs) {
      return "the experts' offsets are damaged";
    }
    for (int32_t expert = 0; expert < args.experts; ++expert) {
      if (args.offsets[expert + 1] < args.offsets[expert]) {
        return "the experts' offsets are damaged";
      }
      if (args.offsets[expert + 1] > args.offsets[expert]) active_[active_count_++] = expert;
    }
    for (int64_t i = 0; i < pairs; ++i) {
      if (args.order[i] < 0 || args.order[i] >= pairs) return "the experts' order is damaged";
    }
    return nullptr;
  }
  int64_t active_count() const { return active_count_; }
  int32_t active(int64_t i) const { return active_[i]; }
  // Begins to read those that are missing, and puts them behind the others; whether there are any.
  bool fetch(CachedExperts& cached, const ExpertsArgs& args) {
    cached.need({args.offsets, static_cast<size_t>(args.experts) + 1}, args.tokens);
    const auto end = active_.begin() + active_count_;
    const auto is_present = [&](int32_t expert) { return cached.present(expert); };
    return std::partition(active_.begin(), end, is_present) != end;
  }
  bool wait_for_down(CachedExperts& cached) const {
    for (int64_t i = 0; i < active_count_; ++i) {
      if (!cached.wait(active_[i], CachedExperts::kDown)) return false;
    }
    return !cached.failed();
  }

 private:
  std::vector<int32_t> active_;
  int64_t active_count_ = 0;
};

class GateUpStep final : public CpuStep {
 public:
  Status bind(const BindContext& context) {
    const BoundView x = context.input(0), xq = context.input(1), h = context.output(0);
    const BoundWeight gate = KTX_TRY(context.weight(0)), up = KTX_TRY(context.weight(1));
    const auto attrs = context.attrs<ExpertsAttrs>();
    KTX_TRY(require_whole(h, "h"));
    KTX_TRY(pairs_.bind(context.input(2), context.input(3), attrs, args_.experts));
    gate_kernel_ = KTX_TRY(matmul_kernel(context, gate, xq));
    up_kernel_ = KTX_TRY(matmul_kernel(context, up, xq));
    args_.gate_kernel = &gate_kernel_;
    args_.up_kernel = &up_kernel_;
    args_.glu_fn = KTX_TRY(find_rows("glu", context.isa));
    args_.glu = attrs.glu();
    gate_bias_ = KTX_TRY(SmallWeight::make(KTX_TRY(context.optional_weight(2))));
    up_bias_ = KTX_TRY(SmallWeight::make(KTX_TRY(context.optional_weight(3))));
    gate_factors_ = KTX_TRY(SmallWeight::make(KTX_TRY(context.optional_weight(4))));
    up_factors_ = KTX_TRY(SmallWeight::make(KTX_TRY(context.optional_weight(5))));
    args_.gate_bias = gate_bias_.data();
    args_.up_bias = up_bias_.data();
    args_.gate_factors = gate_factors_.data();
    args_.up_factors = up_factors_.data();
    args_.gate = {gate.matrix, gate.matrix_bytes};
    args_.up = {up.matrix, up.matrix_bytes};
    cached_ = context.experts ? context.experts->of(context.step.weights[0]) : nullptr;
    if (cached_) {
      args_.gate.places = cached_->gate();
      args_.up.places = cached_->up();
    }
    args_.x = x.f32();
    args_.x_stride = x.stride();
    args_.xq = xq.data;
    args_.xq_stride = xq.stride_bytes;
    args_.h = h.f32();
    args_.h_stride = h.stride() / attrs.top_k;
    bf16_ = xq.type == ValueType::BF16;
    threads_ = context.threads;
    shares_ = context.shares;
    return {};
  }

  StepWork begin(const Batch& batch) override {
    args_.experts.tokens = batch.tokens;
    if (const char* fault = pairs_.look(args_.experts)) return {0, 0, fault};
    const int64_t active = pairs_.active_count();
    // Also where none is chosen here: each pass ages the counts and looks ahead.
    const bool awaits = cached_ && pairs_.fetch(*cached_, args_.experts);
    // The first item, so that the next layer's reads begin beside all of this one's work.
    batch_ = &batch;
    guesses_ = cached_ && cached_->guesses(batch) ? 1 : 0;
    if (active == 0) return {guesses_, 0, nullptr};
    const WeightMatrix& gate = args_.gate.first;
    const int64_t pairs_each = ceil_div(batch.tokens * args_.experts.top_k, active);
    groups_.clear();
    if (is_stream(gate, pairs_each)) {
      runs_ = stream_runs({gate, 2, 2 * active, kRunRows, threads_, shares_});
      if (columns_ > kRunRows) groups_.start(active, gate.rows, columns_);
    } else {
      // BF16 activations are copied for each item: all the rows that it may have.
      const bool copies = bf16_ && batch.tokens > kDecodeTokens;
      const int64_t rows = copies ? kExpertsMaxRows : matmul_chunk_rows(gate, pairs_each);
      runs_ = RowRuns::even(gate.rows, std::clamp<int64_t>(ceil_div(rows, columns_) * columns_,
                                                           columns_, kExpertsMaxRows));
    }
    by_expert_ = shares_ == 1 && (batch.tokens > kDecodeTokens || awaits);
    return {guesses_ + active * runs_.count(),
            active * (args_.gate.expert_bytes + args_.up.expert_bytes), nullptr};
  }

  void lead_part(int64_t /*products*/, int64_t column_group) override { columns_ = column_group; }

  void run(int64_t item, std::byte* scratch) override {
    if ((item -= guesses_) < 0) return cached_->guess(*batch_);
    ExpertsGateUpArgs args = args_;
    args.experts.scratch = scratch;
    const auto [active, expert, part] = place(item);
    if (cached_ && !cached_->wait(expert, CachedExperts::kGateUp)) return;
    // Threads take items in turn: this is likely to be the next one of this thread.
    if (const int64_t next = item + threads_; next < pairs_.active_count() * runs_.count()) {
      const Place then = place(next);
      args.next =
          args_.gate.data(then.expert) + runs_.begin(then.part) * args_.gate.first.row_bytes;
    }
    experts_gate_up(args, expert, runs_.begin(part), runs_.end(part));
  }

  OutputRegion done(int64_t item) override {
    if ((item -= guesses_) < 0) return {};
    const Place at = place(item);
    const ExpertsArgs& experts = args_.experts;
    OutputRegion region = {experts.order, experts.offsets[at.expert],
                           experts.offsets[at.expert + 1], runs_.begin(at.part),
                           runs_.end(at.part)};
    groups_.finish(at.active, region);
    return region;
  }

  int64_t scratch_bytes() const override {
    return experts_scratch_bytes(std::max(args_.gate.first.cols, args_.up.first.cols));
  }

 private:
  // Rows of an item are multiples of this.
  static constexpr int64_t kRunRows = 32;

  struct Place {
    int64_t active;  // of the experts with pairs
    int32_t expert;
    int64_t part;  // of its rows
  };
  Place place(int64_t item) const {
    const int64_t count = pairs_.active_count(), parts = runs_.count();
    const int64_t active = by_expert_ ? item / parts : item % count;
    return {active, pairs_.active(active), by_expert_ ? item % parts : item / count};
  }

  ExpertsGateUpArgs args_;
  CachedExperts* cached_ = nullptr;  // null: all are in the mapping
  MatmulKernel gate_kernel_, up_kernel_;
  SmallWeight gate_bias_, up_bias_, gate_factors_, up_factors_;
  Pairs pairs_;
  RowRuns runs_;
  ColumnGroups groups_;
  int64_t threads_ = 1;
  int64_t columns_ = kRunRows;
  int64_t shares_ = 1;
  bool bf16_ = false;       // activations
  bool by_expert_ = false;  // the order of this step's items
  int64_t guesses_ = 0;     // items before them: 1 where the next layer is guessed
  const Batch* batch_ = nullptr;
};

class DownStep final : public CpuStep {
 public:
  Status bind(const BindContext& context) {
    const BoundView h = context.input(0), hq = context.input(1), y = context.output(0);
    const BoundWeight down = KTX_TRY(context.weight(0));
    const auto attrs = context.attrs<ExpertsAttrs>();
    KTX_TRY(require_whole(h, "h"));
    KTX_TRY(require_whole(context.input(4), "weights"));
    KTX_TRY(pairs_.bind(context.input(2), context.input(3), attrs, args_.experts));
    kernel_ = KTX_TRY(matmul_kernel(context, down, hq));
    args_.down_kernel = &kernel_;
    bias_ = KTX_TRY(SmallWeight::make(KTX_TRY(context.optional_weight(1))));
    args_.bias = bias_.data();
    args_.down = {down.matrix, down.matrix_bytes};
    cached_ = context.experts ? context.experts->of(context.step.weights[0]) : nullptr;
    if (cached_) args_.down.places = cached_->down();
    args_.h = h.f32();
    args_.h_stride = h.stride() / attrs.top_k;
    args_.hq = hq.data;
    args_.hq_stride = hq.data ? hq.stride_bytes / hq.rows_per_row : 0;
    args_.weights = context.input(4).f32();
    args_.y = y.f32();
    args_.by_pair = attrs.by_pair != 0;
    args_.y_stride = args_.by_pair ? y.stride() / attrs.top_k : y.stride();
    args_.accumulate = attrs.accumulate != 0;
    bf16_ = hq.type == ValueType::BF16;
    threads_ = context.threads;
    shares_ = context.shares;
    return {};
  }

  StepWork begin(const Batch& batch) override {
    args_.experts.tokens = batch.tokens;
    if (const char* fault = pairs_.look(args_.experts)) return {0, 0, fault};
    if (cached_ && !pairs_.wait_for_down(*cached_)) return {0, 0, "experts were not read"};
    const WeightMatrix& down = args_.down.first;
    const int64_t active = std::max<int64_t>(1, pairs_.active_count());
    // An item reads its rows of all chosen experts, so that it needs fewer of them; with
    // many tokens as many as a kernel unpacks at once, if every thread gets two items. One
    // token's runs are as long as they may be: after each, memory has to be found anew.
    constexpr int64_t kMostRows = 128, kShortestRows = 32;
    const int64_t rows = down.rows;
    if (is_stream(down, batch.tokens)) {
      runs_ = stream_runs({down, active, active, kPanelRows, threads_, shares_});
    } else {
      const int64_t by_bytes = matmul_chunk_rows(down, 1) / std::min<int64_t>(active, 8);
      // BF16 activations are copied for each item: one item a thread, if it may be so large.
      const int64_t share = ceil_div(rows, threads_);
      const int64_t wish = bf16_ && share <= kMostRows ? share : rows / (2 * threads_);
      const int64_t by_threads = batch.tokens > kDecodeTokens ? wish : 0;
      const int64_t each =
          std::clamp<int64_t>(std::max(by_bytes, by_threads), kPanelRows, kMostRows);
      const int64_t longest = ceil_div(each, kPanelRows) * kPanelRows;
      runs_ = batch.tokens > kDecodeTokens && !bf16_ && shares_ == 1
                  ? RowRuns::falling(
                        rows, {std::min(longest, kShortestRows), longest, kPanelRows, threads_})
                  : RowRuns::even(rows, longest);
    }
    return {runs_.count(), active * args_.down.expert_bytes, nullptr};
  }

  void run(int64_t item, std::byte* scratch) override {
    ExpertsDownArgs args = args_;
    args.experts.scratch = scratch;
    experts_down(args, runs_.begin(item), runs_.end(item));
  }

  int64_t scratch_bytes() const override { return experts_scratch_bytes(args_.down.first.cols); }

 private:
  ExpertsDownArgs args_;
  CachedExperts* cached_ = nullptr;  // null: all are in the mapping
  MatmulKernel kernel_;
  SmallWeight bias_;
  Pairs pairs_;
  RowRuns runs_;
  int64_t threads_ = 1;
  int64_t shares_ = 1;
  bool bf16_ = false;  // activations
};

}  // namespace

const MakeStep make_experts_gate_up = make_step<GateUpStep>;
const MakeStep make_experts_down = make_step<DownStep>;

}  // namespace ktx::runtime

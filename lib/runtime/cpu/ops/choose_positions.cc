// choose_positions: scores of a token's positions, a span at a time, and the best of them.
#include <algorithm>
#include <atomic>

#include "kernels/attention/best_positions.h"
#include "kernels/attention/position_scores.h"
#include "lib/runtime/cpu/ops/cpu_ops.h"
#include "lib/runtime/cpu/ops/row_step.h"

namespace ktx::runtime {
namespace {

using kernels::BestPositions;
using kernels::Candidate;
using kernels::kAttentionSpan;

// Items are (run of tokens), or of few tokens with a long past (token, part of its positions), of
// which the last to be done chooses among the best of all parts.
class ChoosePositionsStep final : public CpuStep {
 public:
  Status bind(const BindContext& context) {
    point_to(context.input(0), args_.q, args_.q_stride);
    point_to(context.input(1), args_.weights, args_.weights_stride);
    args_.attrs = context.attrs<ChoosePositionsAttrs>();
    args_.kv = context.kv_view(args_.attrs.slot);
    const BoundView chosen = context.output(0);
    chosen_ = chosen.i32();
    chosen_stride_ = chosen.stride();
    threads_ = context.threads;
    partials_ = context.partials;
    run_ = KTX_TRY(kernels::find_position_scores(context.family(), context.isa));
    return {};
  }

  StepWork begin(const Batch& batch) override {
    args_.kv.tables = batch.tables.data();
    args_.kv.sequence = batch.sequence.data();
    args_.kv.position = batch.position.data();
    const bool few = batch.tokens <= kDecodeTokens;
    tokens_ = {batch.tokens, few ? 1 : kRunTokens};
    parts_ = few && partials_ ? parts_of(batch) : 1;
    for (int64_t t = 0; parts_ > 1 && t < batch.tokens; ++t) {
      partials_->left[t].store(parts_, std::memory_order_relaxed);
    }
    return {tokens_.items() * parts_, 0, nullptr};
  }

  void run(int64_t item, std::byte* scratch) override {
    const Memory memory(scratch, args_.attrs);
    if (parts_ > 1) return run_part(item / parts_, item % parts_, memory);
    const int64_t run = tokens_.items() - 1 - item;  // late tokens have the longest past
    const int64_t end = tokens_.end(run);
    for (int64_t t = tokens_.begin(run); t < end;) {
      int64_t next = t + 1;
      while (next < end && args_.kv.sequence[next] == args_.kv.sequence[t]) ++next;
      choose(t, next, memory);
      t = next;
    }
  }

  int64_t scratch_bytes() const override {
    return Memory(nullptr, args_.attrs).bytes + kernels::position_scores_scratch_bytes(args_.attrs);
  }

 private:
  static constexpr int64_t kRunTokens = 4;  // of an item: they share the keys of a span

  // This thread's memory.
  struct Memory {
    Memory(std::byte* scratch, const ChoosePositionsAttrs& attrs)
        : candidates(reinterpret_cast<Candidate*>(scratch)),
          each(kernels::candidate_count(attrs.top_k)),
          bytes((kRunTokens * each * int64_t{sizeof(Candidate)} + 63) / 64 * 64 +
                kRunTokens * kAttentionSpan * int64_t{sizeof(float)}) {
      const int64_t before = bytes - kRunTokens * kAttentionSpan * int64_t{sizeof(float)};
      scores = reinterpret_cast<float*>(scratch + before);
      kernel = scratch + bytes;
    }
    Candidate* candidates;  // [kRunTokens][each]
    int64_t each;
    int64_t bytes;
    float* scores = nullptr;  // [kRunTokens][kAttentionSpan]
    std::byte* kernel = nullptr;
  };

  // As many parts as make work for all threads, where the memory allows it.
  int64_t parts_of(const Batch& batch) const {
    int64_t longest = 0;
    for (int64_t t = 0; t < batch.tokens; ++t) {
      longest = std::max<int64_t>(longest, batch.position[t] + 1);
    }
    const int64_t words = partials_->float_count() / 2 / (args_.attrs.top_k + 1);
    const int64_t rows = std::max<int64_t>(batch.tokens, 1);
    const int64_t parts = std::min({ceil_div(longest, kChoicePart), ceil_div(2 * threads_, rows),
                                    kMaxChoiceParts, words / rows});
    return rows > std::ssize(partials_->left) ? 1 : std::max<int64_t>(parts, 1);
  }

  int64_t positions(int64_t token) const { return int64_t{args_.kv.position[token]} + 1; }
  bool takes_all(int64_t token) const { return positions(token) <= args_.attrs.top_k; }
  void take_all(int64_t token) const {
    int32_t* out = chosen_ + token * chosen_stride_;
    for (int64_t i = 0; i < args_.attrs.top_k; ++i) {
      out[i] = i < positions(token) ? static_cast<int32_t>(i) : -1;
    }
  }

  // Tokens [begin, end) of one sequence.
  void choose(int64_t begin, int64_t end, const Memory& memory) const {
    for (; begin < end && takes_all(begin); ++begin) take_all(begin);
    if (begin == end) return;
    BestPositions best[kRunTokens] = {
        {memory.candidates, args_.attrs.top_k},
        {memory.candidates + memory.each, args_.attrs.top_k},
        {memory.candidates + 2 * memory.each, args_.attrs.top_k},
        {memory.candidates + 3 * memory.each, args_.attrs.top_k},
    };
    score(begin, end, 0, positions(end - 1), memory, best);
    for (int64_t t = begin; t < end; ++t) {
      best[t - begin].finish(chosen_ + t * chosen_stride_);
    }
  }

  // Adds what tokens [begin, end) see of the positions [first, last); first is a span's.
  void score(int64_t begin, int64_t end, int64_t first, int64_t last, const Memory& memory,
             BestPositions* best) const {
    kernels::PositionScoresArgs args = args_;
    args.token_begin = begin;
    args.token_end = end;
    args.scores = memory.scores;
    args.scratch = memory.kernel;
    for (int64_t span = first; span < last; span += kAttentionSpan) {
      args.position_begin = span;
      args.position_end = std::min(last, span + kAttentionSpan);
      run_(args);
      for (int64_t t = begin; t < end; ++t) {
        const int64_t seen = std::min(args.position_end, positions(t)) - span;
        best[t - begin].add(memory.scores + (t - begin) * kAttentionSpan, span, seen);
      }
    }
  }

  // The best of one part of a token's positions, to memory that the parts share.
  void run_part(int64_t token, int64_t part, const Memory& memory) const {
    const int64_t spans = ceil_div(ceil_div(positions(token), kAttentionSpan), parts_);
    const int64_t first = part * spans * kAttentionSpan;
    const int64_t last = std::min(positions(token), first + spans * kAttentionSpan);
    const int64_t top_k = args_.attrs.top_k;
    auto* const shared =
        reinterpret_cast<Candidate*>(partials_->floats()) + token * parts_ * (top_k + 1);
    if (!takes_all(token)) {
      BestPositions best(memory.candidates, top_k);
      if (first < last) score(token, token + 1, first, last, memory, &best);
      const std::span<const Candidate> kept = best.best();
      Candidate* out = shared + part * (top_k + 1);
      out[0] = kept.size();
      std::copy(kept.begin(), kept.end(), out + 1);
    }
    if (partials_->left[token].fetch_sub(1, std::memory_order_acq_rel) > 1) return;
    if (takes_all(token)) return take_all(token);
    BestPositions best(memory.candidates, top_k);
    for (int64_t p = 0; p < parts_; ++p) {
      const Candidate* in = shared + p * (top_k + 1);
      for (Candidate i = 1; i <= in[0]; ++i) best.add(in[i]);
    }
    best.finish(chosen_ + token * chosen_stride_);
  }

  kernels::PositionScoresArgs args_;
  int32_t* chosen_ = nullptr;
  int64_t chosen_stride_ = 0;
  kernels::PositionScoresFn run_ = nullptr;
  RowSplit tokens_;
  int64_t parts_ = 1;  // items per token
  int64_t threads_ = 1;
  AttentionPartials* partials_ = nullptr;
};

}  // namespace

Result<std::unique_ptr<CpuStep>> make_choose_positions(const BindContext& context) {
  return make_step<ChoosePositionsStep>(context);
}

}  // namespace ktx::runtime

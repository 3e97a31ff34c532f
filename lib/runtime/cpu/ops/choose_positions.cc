// choose_positions and choose_blocks: scores of what a token may choose, a span at a time, and the
// best of them.
#include <algorithm>
#include <atomic>
#include <memory>
#include <span>
#include <vector>

#include "kernels/attention/best_positions.h"
#include "kernels/attention/block_scores.h"
#include "kernels/attention/position_scores.h"
#include "lib/runtime/cpu/ops/cpu_ops.h"
#include "lib/runtime/cpu/ops/row_step.h"

namespace ktx::runtime {
namespace {

using kernels::BestPositions;
using kernels::Candidate;
using kernels::kAttentionSpan;

// Each of `lists` lists gets top_k units of `unit` positions: the last `kept` of them always, the
// others by their scores.
struct Choice {
  int64_t top_k = 0;
  int64_t lists = 1;
  int64_t unit = 1;
  int64_t kept = 0;
  int64_t every = 1;  // positions of an entry; 1: there are none
  int64_t open = 0;   // behind the chosen ones stands the entry that is not whole
  int64_t span_units() const { return kAttentionSpan / unit; }
  int64_t free() const { return top_k - kept; }
};

struct Positions {
  using Attrs = ChoosePositionsAttrs;
  using Args = kernels::PositionScoresArgs;
  using Fn = kernels::PositionScoresFn;
  static Choice choice(const Attrs& attrs) {
    return {attrs.top_k, 1, 1, 0, attrs.every, attrs.open};
  }
  static Result<Fn> find(std::string_view family, Isa isa) {
    return kernels::find_position_scores(family, isa);
  }
  static void point(const BindContext& context, Args& args) {
    if (context.input(1).data == nullptr) return;
    point_to(context.input(1), args.weights, args.weights_stride);
  }
  static void set_range(Args& args, int64_t begin, int64_t end) {
    args.position_begin = begin, args.position_end = end;
  }
  static int64_t scratch_bytes(const Attrs& attrs) {
    return kernels::position_scores_scratch_bytes(attrs);
  }
};

struct Blocks {
  using Attrs = ChooseBlocksAttrs;
  using Args = kernels::BlockScoresArgs;
  using Fn = kernels::BlockScoresFn;
  static Choice choice(const Attrs& attrs) {
    return {attrs.top_k, attrs.heads, attrs.block, attrs.local};
  }
  static Result<Fn> find(std::string_view family, Isa isa) {
    return kernels::find_block_scores(family, isa);
  }
  static void point(const BindContext&, Args&) {}
  static void set_range(Args& args, int64_t begin, int64_t end) {
    args.block_begin = begin, args.block_end = end;
  }
  static int64_t scratch_bytes(const Attrs& attrs) {
    return kernels::block_scores_scratch_bytes(attrs);
  }
};

// Items are (run of tokens), or of few tokens with a long past (token, part of its units), of which
// the last to be done chooses among the best of all parts.
template <class Of>
class ChooseStep final : public CpuStep {
 public:
  Status bind(const BindContext& context) {
    point_to(context.input(0), args_.q, args_.q_stride);
    Of::point(context, args_);
    args_.attrs = context.attrs<typename Of::Attrs>();
    args_.kv = context.kv_view(args_.attrs.slot);
    kind_ = context.kv.kind_of(args_.attrs.slot);
    choice_ = Of::choice(args_.attrs);
    if (choice_.every > 1) {
      args_.kv.layout = kernels::entry_layout(args_.kv.layout, args_.attrs.key_dim, choice_.every);
    }
    const BoundView chosen = context.output(0);
    chosen_ = chosen.i32();
    chosen_stride_ = chosen.stride();
    threads_ = context.threads;
    partials_ = context.partials;
    run_ = KTX_TRY(Of::find(context.family(), context.isa));
    return {};
  }

  StepWork begin(const Batch& batch) override {
    use_batch(args_.kv, batch, kind_);
    if (choice_.every > 1) number_entries(batch);
    const bool few = batch.tokens <= kDecodeTokens;
    tokens_ = {batch.tokens, few ? 1 : kRunTokens};
    parts_ = few && partials_ ? parts_of(batch) : 1;
    for (int64_t t = 0; parts_ > 1 && t < batch.tokens; ++t) {
      partials_->left[t].store(parts_, std::memory_order_relaxed);
    }
    return {tokens_.items() * parts_, 0, nullptr};
  }

  void run(int64_t item, std::byte* scratch) override {
    const Memory memory(scratch, choice_);
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
    return Memory(nullptr, choice_).bytes + Of::scratch_bytes(args_.attrs);
  }

 private:
  static constexpr int64_t kRunTokens = 4;  // of an item: they share the keys of a span

  // This thread's memory.
  struct Memory {
    Memory(std::byte* scratch, const Choice& choice)
        : lists(choice.lists), each(kernels::candidate_count(choice.free())) {
      const auto take = [&](int64_t size) {
        std::byte* const from = scratch + bytes;
        bytes += (size + 63) / 64 * 64;
        return from;
      };
      candidates = reinterpret_cast<Candidate*>(
          take(kRunTokens * lists * each * int64_t{sizeof(Candidate)}));
      best = reinterpret_cast<BestPositions*>(
          take(kRunTokens * lists * int64_t{sizeof(BestPositions)}));
      scores = reinterpret_cast<float*>(
          take(kRunTokens * lists * choice.span_units() * int64_t{sizeof(float)}));
      kernel = scratch + bytes;
    }
    // The best of each list of so many tokens, none yet.
    void start(int64_t tokens, int64_t most) const {
      for (int64_t i = 0; i < tokens * lists; ++i) {
        std::construct_at(best + i, candidates + i * each, most);
      }
    }
    int64_t lists, each;
    int64_t bytes = 0;
    Candidate* candidates = nullptr;  // [kRunTokens][lists][each]
    BestPositions* best = nullptr;    // [kRunTokens][lists]
    float* scores = nullptr;          // [kRunTokens][lists][span_units]
    std::byte* kernel = nullptr;
  };

  // Entries are taken as positions: the last one that a token sees is its own.
  void number_entries(const Batch& batch) {
    last_entry_.resize(static_cast<size_t>(batch.tokens));
    is_open_.resize(static_cast<size_t>(batch.tokens));
    for (int64_t t = 0; t < batch.tokens; ++t) {
      last_entry_[t] = static_cast<int32_t>(entries_seen(choice_.every, batch.position[t]) - 1);
      is_open_[t] = (batch.position[t] + 1) % choice_.every != 0;
    }
    args_.kv.position = last_entry_.data();
  }

  // As many parts as make work for all threads, where the memory allows it.
  int64_t parts_of(const Batch& batch) const {
    int64_t longest = 0;
    for (int64_t t = 0; t < batch.tokens; ++t) {
      longest = std::max<int64_t>(longest, args_.kv.position[t] + 1);
    }
    const int64_t words = partials_->float_count() / 2 / (choice_.lists * (choice_.free() + 1));
    const int64_t rows = std::max<int64_t>(batch.tokens, 1);
    const int64_t parts = std::min({ceil_div(longest, kChoicePart), ceil_div(2 * threads_, rows),
                                    kMaxChoiceParts, words / rows});
    return rows > std::ssize(partials_->left) ? 1 : std::max<int64_t>(parts, 1);
  }

  int64_t units(int64_t token) const {
    const int64_t position = args_.kv.position[token];
    return position < 0 ? 0 : position / choice_.unit + 1;
  }
  int64_t scored(int64_t token) const { return units(token) - choice_.kept; }
  bool takes_all(int64_t token) const { return units(token) <= choice_.top_k; }
  int32_t* list(int64_t token, int64_t number) const {
    return chosen_ + token * chosen_stride_ + number * choice_.top_k;
  }
  void take_all(int64_t token) const {
    for (int64_t l = 0; l < choice_.lists; ++l) {
      for (int64_t i = 0; i < choice_.top_k; ++i) {
        list(token, l)[i] = i < units(token) ? static_cast<int32_t>(i) : -1;
      }
    }
    add_open(token, std::min(units(token), choice_.top_k));
  }
  // A list of entries has room for one more than it may choose.
  void add_open(int64_t token, int64_t chosen) const {
    if (choice_.open == 0) return;
    int32_t* const out = list(token, 0);
    out[choice_.top_k] = -1;
    if (is_open_[token]) out[chosen] = static_cast<int32_t>(units(token));
  }
  void finish(int64_t token, int64_t number, BestPositions& best) const {
    int32_t* const out = list(token, number);
    best.finish(out);
    for (int64_t i = 0; i < choice_.kept; ++i) {
      out[choice_.free() + i] = static_cast<int32_t>(scored(token) + i);
    }
    add_open(token, choice_.top_k);
  }

  // Tokens [begin, end) of one sequence.
  void choose(int64_t begin, int64_t end, const Memory& memory) const {
    for (; begin < end && takes_all(begin); ++begin) take_all(begin);
    if (begin == end) return;
    memory.start(end - begin, choice_.free());
    score(begin, end, 0, scored(end - 1), memory);
    for (int64_t t = begin; t < end; ++t) {
      for (int64_t l = 0; l < choice_.lists; ++l) {
        finish(t, l, memory.best[(t - begin) * choice_.lists + l]);
      }
    }
  }

  // Adds what tokens [begin, end) may choose of the units [first, last); first is a span's.
  void score(int64_t begin, int64_t end, int64_t first, int64_t last, const Memory& memory) const {
    if (choice_.free() == 0) return;
    typename Of::Args args = args_;
    args.token_begin = begin;
    args.token_end = end;
    args.scores = memory.scores;
    args.scratch = memory.kernel;
    const int64_t at_once = choice_.span_units();
    for (int64_t span = first; span < last; span += at_once) {
      const int64_t span_end = std::min(last, span + at_once);
      Of::set_range(args, span, span_end);
      run_(args);
      for (int64_t i = 0; i < (end - begin) * choice_.lists; ++i) {
        const int64_t seen = std::min(span_end, scored(begin + i / choice_.lists)) - span;
        memory.best[i].add(memory.scores + i * at_once, span, seen);
      }
    }
  }

  // The best of one part of a token's units, to memory that the parts share.
  void run_part(int64_t token, int64_t part, const Memory& memory) const {
    const int64_t lists = choice_.lists, free = choice_.free();
    const int64_t at_once = choice_.span_units();
    const int64_t spans = ceil_div(ceil_div(scored(token), at_once), parts_);
    const int64_t first = part * spans * at_once;
    const int64_t last = std::min(scored(token), first + spans * at_once);
    auto* const shared = reinterpret_cast<Candidate*>(partials_->floats());
    const auto best_of_part = [&](int64_t p, int64_t l) {
      return shared + ((token * parts_ + p) * lists + l) * (free + 1);
    };
    if (!takes_all(token)) {
      memory.start(1, free);
      if (first < last) score(token, token + 1, first, last, memory);
      for (int64_t l = 0; l < lists; ++l) {
        const std::span<const Candidate> kept = memory.best[l].best();
        Candidate* out = best_of_part(part, l);
        out[0] = kept.size();
        std::copy(kept.begin(), kept.end(), out + 1);
      }
    }
    if (partials_->left[token].fetch_sub(1, std::memory_order_acq_rel) > 1) return;
    if (takes_all(token)) return take_all(token);
    memory.start(1, free);
    for (int64_t l = 0; l < lists; ++l) {
      for (int64_t p = 0; p < parts_; ++p) {
        const Candidate* in = best_of_part(p, l);
        for (Candidate i = 1; i <= in[0]; ++i) memory.best[l].add(in[i]);
      }
      finish(token, l, memory.best[l]);
    }
  }

  typename Of::Args args_;
  SequenceKind kind_ = SequenceKind::Whole;
  Choice choice_;
  std::vector<int32_t> last_entry_;  // by token
  std::vector<uint8_t> is_open_;     // whether the token's position is in no whole entry
  int32_t* chosen_ = nullptr;
  int64_t chosen_stride_ = 0;
  typename Of::Fn run_ = nullptr;
  RowSplit tokens_;
  int64_t parts_ = 1;  // items per token
  int64_t threads_ = 1;
  AttentionPartials* partials_ = nullptr;
};

}  // namespace

const MakeStep make_choose_positions = make_step<ChooseStep<Positions>>;
const MakeStep make_choose_blocks = make_step<ChooseStep<Blocks>>;

}  // namespace ktx::runtime

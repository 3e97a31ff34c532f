// A plan ready to run: the mapped file, memory, threads and bound steps.
//
//   auto engine = KTX_TRY(Engine::open("m.ktxplan", {.threads = 8}));
//   Sequence sequence = engine->new_sequence();
//   const BatchItem item{&sequence, prompt, Want::Last};
//   const Forward result = KTX_TRY(engine->forward({&item, 1}));
//   if (result == Forward::Done) use(engine->logits(0));
//
// Most callers use Session (session.h), which adds sampling and token history. An engine serves
// one thread at a time and owns its worker threads. Logits of a token depend on the tokens
// before it alone: the number of threads, the chunks and the other sequences of a batch change
// no bit.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kernels/kernel_id.h"
#include "lib/plan/expert_profile.h"
#include "lib/plan/memory.h"
#include "lib/plan/plan_reader.h"
#include "lib/runtime/cache/prefix_cache.h"
#include "lib/runtime/cpu/cpu_op_table.h"
#include "lib/runtime/engine/expert_use.h"
#include "lib/runtime/engine/step_stats.h"
#include "lib/runtime/experts/expert_cache_use.h"
#include "lib/runtime/sampling/best_logits.h"
#include "lib/runtime/sampling/token_filter.h"
#include "lib/support/result.h"
#include "lib/target/isa.h"

namespace ktx {
class ThreadPool;
}

namespace ktx::runtime {

class Gpu;
struct ExpertCacheOptions;
class HostGroup;
class ForwardTrace;
struct SequenceState;
struct ForwardWatch;
using Precision = kernels::Precision;

// What a step of this host wrote: rows of a value, and of them the part that is the step's.
struct StepResult {
  std::string_view value;  // "L3.router"
  int32_t layer = -1;      // of the step; -1: of none
  std::span<const float> rows;
  int64_t stride = 0;  // elements from row to row
  int64_t begin = 0, width = 0;
};

// A step of the CPU that ran twice (cpu/repeated_steps.h).
struct StepRepeat {
  uint32_t step = 0;      // index in PlanView::steps
  double difference = 0;  // |fast - scalar| / |scalar|; of whole numbers, the share that differs
};

// Whether threads stay on their CPUs. Auto: when they are on several NUMA nodes.
enum class Pin { Auto, On, Off };

// Auto: if all of them can; On: if not, startup fails.
enum class GpuLinks { Off, Auto, On };

// Values not given come from the plan's defaults.
struct EngineOptions {
  int threads = 0;  // 0: one per core that this process may use
  Pin pin = Pin::Auto;
  // Those of another engine that the same thread runs, in place of threads of its own.
  std::shared_ptr<ThreadPool> pool;
  std::optional<Precision> precision;
  std::optional<int64_t> ctx;  // tokens per sequence
  bool largest_ctx = false;    // instead: as many as fit (largest_ctx.h)
  // A plan that is going to run beside this one, with the same context and batch (a draft plan):
  // the largest context leaves room for it.
  std::shared_ptr<const plan::PlanFile> beside;
  uint64_t reserved_bytes = 0;             // of the host's memory, that others are going to take
  std::optional<int64_t> max_batch;        // sequences in one step
  std::optional<int64_t> kv_budget_bytes;  // at most so much for the cache; 0: as needed
  std::optional<plan::KvType> kv_type;     // exact precision always takes F32
  std::optional<int64_t> chunk_tokens;     // most tokens in a step
  bool all_logits = false;                 // room for the logits of every token of a step
  int64_t sequence_logits = 1;             // else for so many of each sequence
  int64_t rollback_tokens = 0;             // BatchItem::rollback, where a model has states
  std::optional<Isa> isa;                  // else the best of the machine
  bool drafter = false;                    // open the plan that this one has as its drafter
  bool verify = false;                     // check the hashes of all weights first
  // Main memory for routed experts of the CPU, others are read when they are needed
  // (experts/expert_room.h); none: all are mapped where they fit; 0: they are mapped.
  std::optional<int64_t> expert_memory_bytes;
  bool huge_pages = false;  // copy the plan into huge pages instead of mapping it
  // Of plans with GPUs: whether steps of few tokens are captured as graphs, and whether
  // every result is looked at for infinity and NaN (slow; names the module).
  bool gpu_graphs = true;
  bool check_finite = false;
  bool count_experts = false;                                 // by layer and expert
  std::function<void(const StepResult&)> on_result;           // receives each F32 result; slow
  std::function<void(const StepRepeat&)> on_repeat;           // runs steps of the CPU twice; slow
  CpuOpTable cpu_op = nullptr;                                // for tests; null: this program's
  const ExpertCacheOptions* expert_cache = nullptr;           // for tests; its slots do not count
  std::function<Result<std::unique_ptr<Gpu>>(int)> open_gpu;  // for tests; empty: this machine's
  // Of plans for several hosts: whether GPUs of different ones have links (gpu/gpu_link.h).
  GpuLinks gpu_links = GpuLinks::Auto;
  // Of a plan for several hosts: all of them, of which this one is the first (hosts/host_group.h).
  std::shared_ptr<HostGroup> hosts;
};

class Engine;

// A text in the cache. Frees its blocks when destroyed; the engine must live longer.
class Sequence {
 public:
  Sequence(Sequence&&) noexcept;
  Sequence& operator=(Sequence&&) noexcept;
  ~Sequence();

  int64_t length() const { return length_; }  // tokens in the cache
  // With those of passes in flight (Engine::begin).
  int64_t begun() const { return length_ + ahead_; }
  // Forgets all tokens from `length` on; larger than length() does nothing. Where layers have
  // windows, blocks that the text needs to go on from there may have gone: it is empty then.
  // Some 64 tokens (plan::kKvWindowSlack) can always be taken back. Where layers have states of a
  // fixed size, it is as long as at the last place up to there that has states: the beginning of
  // the last step, a token of BatchItem::rollback, or a snapshot that the prefix cache does not
  // have yet.
  void truncate(int64_t length);
  bool can_truncate(int64_t length) const;  // to so many, and no fewer

 private:
  friend class Engine;
  Sequence(Engine* engine, std::string owner);
  void set_engine(Engine* engine);  // which knows its sequences
  Engine* engine_ = nullptr;
  std::string owner_;
  int64_t length_ = 0, ahead_ = 0;
  KvTables tables_;
};

enum class Want { None, Last, All };  // whose logits

struct BatchItem {
  Sequence* sequence = nullptr;
  std::span<const int32_t> tokens;
  Want want = Want::Last;
  // The best so many logits of each wanted row are enough: a GPU need not send the rest.
  // At most kMostBestLogits; -1: all.
  int32_t best = -1;
  // Where only the best come: the best of those that this allows.
  TokenFilter* filter = nullptr;
  // Places of the text, as rising numbers of tokens, whose states are worth a snapshot; those in
  // this pass are made, as far as there is room (snapshot_places.h).
  std::span<const int64_t> snapshots = {};
  // So many of the last tokens can be taken back one by one, also where layers have states of a
  // fixed size (as far as there are slots: EngineOptions::rollback_tokens of a sequence).
  int64_t rollback = 0;
  // Of plans of drafters that read a model's hidden states: for each token
  // PlanFacts::given_width floats, the states behind the token before.
  std::span<const float> hidden = {};
};

enum class Forward {
  Done,
  ContextFull,  // a sequence would get longer than ctx; nothing was computed
  CacheFull,    // the blocks of the cache are used up by other sequences; likewise
  Stopped,      // by the watch; the sequences keep their lengths, and there are no logits
};

struct EngineStats {
  int64_t steps = 0;         // calls of forward
  int64_t tokens = 0;        // tokens computed
  int64_t weight_bytes = 0;  // weights read for them
  ExpertUse expert_use;      // activations of routed experts in them
  ExpertCacheUse expert_cache;
};

// Blocks of the KV cache (64 tokens each).
struct CacheState {
  int64_t total = 0;
  int64_t free = 0;
  int64_t idle = 0;  // kept for reuse, given back when needed
  // Slots of states of a fixed size; none where a model has none.
  int64_t states_total = 0;
  int64_t states_free = 0;
  int64_t snapshots = 0;  // kept for reuse
};

// The first position of a sequence whose rows are there, of each kind of blocks.
using KvBegins = ByBlockKind<int64_t>;

// A GPU by name and the rated GB/s of its memory.
struct GpuUse {
  std::string name;
  double bandwidth_gbps = 0;
};

class Engine {
 public:
  // Fails when the plan is damaged, needs what this machine or version lacks, or
  // does not fit the memory (a table with the ways out). Messages begin with PATH.
  static Result<std::unique_ptr<Engine>> open(const std::string& path,
                                              const EngineOptions& options);
  ~Engine();

  const plan::PlanView& plan() const;
  // An error once the plan's file was cut off or changed: no pass succeeds any more. From any
  // thread.
  Status check_plan() const;
  const plan::MemoryEstimate& memory() const;
  // The weights that are not what the plan says, in main memory and in those of GPUs: indices of
  // PlanView::blobs. Reads all of them, also those of the plan's file that are not in memory yet.
  // True in `stop` (null: nothing) ends it early. Not those of other hosts.
  Result<std::vector<uint32_t>> check_weights(const std::atomic<bool>* stop = nullptr);
  // Things worth telling the user: "the weights do not fit the memory ...".
  const std::vector<std::string>& notes() const;
  int threads() const;
  std::shared_ptr<ThreadPool> pool() const;
  Isa isa() const;
  std::vector<GpuUse> gpus() const;  // those in use; none for a CPU plan
  Precision precision() const;
  plan::KvType kv_type() const;
  int64_t ctx() const;
  int64_t max_batch() const;
  int64_t chunk_tokens() const;
  // Tokens that BatchItem::rollback can ask for; more than a pass has where there are no states.
  int64_t rollback_tokens() const;
  int64_t vocab_size() const;

  // `owner`: whose text it is. What is kept for reuse is found by the same owner alone.
  Sequence new_sequence(std::string owner = {});
  // Appends each item's tokens to its sequence and computes the wanted logits. At
  // most max_batch() items with different sequences and chunk_tokens() tokens in
  // all. Fails on token ids outside of the vocabulary, when the file shrank, or on
  // damaged data; the sequences keep their lengths then.
  // `before_filters` is called before items' filters are queried, while a GPU computes.
  // `watch` (may be null) sees how far the step is and may end it.
  Result<Forward> forward(std::span<const BatchItem> items,
                          const std::function<void()>& before_filters = {},
                          const ForwardWatch* watch = nullptr);

  // The same in two calls, for plans over several hosts: while others compute a pass, this one
  // begins the next, so that up to most_forwards() are in flight.
  //
  //   engine.begin(a);  engine.begin(b);  engine.finish();   // of a
  //
  // begin() gives Done where the pass is in flight, else nothing was begun. finish() is of the
  // oldest, and has its logits, until the next call of either. What a pass has of a sequence counts
  // at once for the next begin(): chunks of a text may follow each other, where goes_ahead(); when
  // one fails or is stopped, so do those behind it. A sequence in flight is not to be cut, kept or
  // moved; one that ends waits for all passes. All else of an engine but visit_kv(), copy_states()
  // and hidden() may be called between; forward() may not.
  int64_t most_forwards() const;
  int64_t passes() const;  // in flight
  bool goes_ahead() const;
  Result<Forward> begin(std::span<const BatchItem> items,
                        const std::function<void()>& before_filters = {},
                        const ForwardWatch* watch = nullptr);
  Result<Forward> finish();
  void finish_all();  // what they give is lost

  // Fills a sequence that holds the first length() tokens of `tokens` with what the
  // cache still has of the rest, the last token left out (its logits are wanted).
  // Works at whole blocks: length() must be a multiple of 64, else nothing happens.
  PrefixHit reuse_prefix(Sequence& sequence, std::span<const int32_t> tokens);
  PrefixBlocks find_prefix(std::span<const int32_t> tokens, const std::string& owner = {}) const;
  // Keeps what the sequence holds for reuse, whole blocks only; `tokens` are those in
  // it. The sequence can go on.
  void keep_prefix(Sequence& sequence, std::span<const int32_t> tokens);
  // The same with the last, partly filled block, and ends the sequence.
  void retire(Sequence sequence, std::span<const int32_t> tokens);
  // For session files (session_file.h): the rows of keys and values that a sequence
  // holds, on all devices, in a fixed order (with Write they become what `call` leaves
  // in them); their bytes; the first position of them of each kind of blocks; and a sequence
  // of so many tokens whose rows the caller is going to fill. False when the cache has no room,
  // or a kind begins behind what the next token reads.
  enum class Visit { Read, Write };
  Status visit_kv(const Sequence& sequence, Visit visit, const VisitRows& call);
  int64_t kv_row_bytes(const Sequence& sequence) const;
  KvBegins kv_begins(const Sequence& sequence) const;
  bool has_windows() const;  // whether truncate() may take back more than it should
  bool has_states() const;   // likewise, of a fixed size
  // Those of a sequence with tokens, on all devices, as one piece of state_bytes(): 0 where there
  // are none. With Write they become `bytes`.
  uint64_t state_bytes(const Sequence& sequence) const;
  Status copy_states(const Sequence& sequence, Visit visit, std::span<std::byte> bytes);
  bool extend_uncomputed(Sequence& sequence, int64_t tokens, KvBegins begins);
  // Drops a kept text except blocks with other users.
  void forget_prefix(std::span<const int32_t> tokens, const std::string& owner = {});
  CacheState cache_state() const;

  // Logits of the last forward(): one row per wanted token, in order of the items.
  // Of models without logits, their outputs (PlanFacts::output_width()): a text's scores, or hidden
  // states. Valid until the next forward(). If only the best were requested they may be all
  // that is here: has_logits() says.
  int64_t logits_rows() const;
  bool has_logits(int64_t row) const;
  bool is_filtered(int64_t row) const;  // best() has what the item's filter allows
  std::span<const float> logits(int64_t row) const;
  BestLogits best(int64_t row) const;  // where not has_logits()
  // Copies the whole row of logits from the GPU, when best() was not enough; then has_logits(row).
  Status fetch_logits(int64_t row);

  // Calls work(0) to work(items - 1) on the engine's threads, which rest between two passes.
  void share_out(int64_t items, const std::function<void(int64_t)>& work);

  // The final norm's output for that row of logits: hidden_size() floats, for
  // embeddings. Fails where the plan does not keep it.
  Status hidden(int64_t row, std::span<float> out);
  // The hidden states that the plan keeps for a drafter (PlanFacts::hidden_values), of `count`
  // tokens of the pass from `token` on: kept_width() floats each. Valid until the next call of this
  // or of another pass. Fails where it keeps none.
  // `all`: those of the pass's other tokens are asked for next, so that those of few tokens cross
  // from a GPU at once.
  Result<std::span<const float>> hidden_of_tokens(int64_t token, int64_t count, bool all = false);
  int64_t kept_width() const;
  int64_t hidden_size() const;
  // Most rows of logits that one forward() can give.
  int64_t max_outputs() const;

  const EngineStats& stats() const;
  // With EngineOptions::count_experts: the activations of all steps so far.
  Result<plan::ExpertProfile> expert_profile();
  // Per-step times since they were switched on; off by default.
  void enable_step_stats(bool on);
  std::vector<StepTime> step_times() const;
  // Notes what runs when in the passes that follow (forward_trace.h), until null; off by default.
  void set_trace(ForwardTrace* trace);
  // The mean over `steps` (records of the plan, all on one GPU) in turn inside a graph, at
  // the shape of the last pass. Overwrites values: the next pass must not rely on them.
  Result<KernelTime> time_gpu_steps(std::span<const uint32_t> steps);
  // The steps that `step` of a GPU stands for at the shape of the last pass: itself, all of a
  // fused op that runs at its place, or none when another stands for it. Itself on a CPU.
  std::vector<uint32_t> gpu_steps_of_launch(uint32_t step) const;

 private:
  friend class Sequence;
  struct State;
  explicit Engine(std::unique_ptr<State> state);
  struct Pass;
  Status read_kept(int64_t token, int64_t count);
  Result<Forward> begin_forward(Pass& pass, std::span<const BatchItem> items);
  Result<Forward> finish_forward(Pass& pass);
  Result<bool> compute(Pass& pass);
  Error named(const Error& error) const;
  bool take_states(Pass& pass);  // forward_states.cc
  void take_rollback(const BatchItem& item, SequenceState& state);
  void take_snapshots(const BatchItem& item, SequenceState& state);
  void keep_states(Pass& pass);
  void give_back_states(Pass& pass);
  std::unique_ptr<State> state_;
};

}  // namespace ktx::runtime

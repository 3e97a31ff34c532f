// A plan ready to run: the mapped file, memory, threads and bound steps. Engine::open is in
// open_engine.cc.
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
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lib/plan/memory.h"
#include "lib/plan/plan_reader.h"
#include "lib/runtime/engine/engine_options.h"
#include "lib/runtime/engine/expert_use.h"
#include "lib/runtime/engine/fit.h"
#include "lib/runtime/engine/sequence_cache.h"
#include "lib/runtime/experts/expert_cache_use.h"
#include "lib/runtime/experts/expert_guest_use.h"
#include "lib/runtime/sampling/best_logits.h"
#include "lib/runtime/sampling/token_filter.h"
#include "lib/support/result.h"
#include "lib/target/isa.h"

namespace ktx::runtime {

class PlanRunner;
struct ForwardWatch;

enum class Want { None, Last, All };  // whose logits

// Tokens of a text that are an image. Their ids are below 0: they distinguish images, and are in no
// vocabulary (images/image_reader.h).
struct ImageTokens {
  int64_t first = 0;  // token of the text
  int64_t count = 0;
  // Rows of ImageFacts::row_width() floats, instead of embeddings. The tokens' rows begin at
  // first_row: an image may stand in a text line by line.
  std::shared_ptr<const std::vector<float>> rows;
  int64_t first_row = 0;
  bool causal = false;  // a token sees those before it alone, and a pass may end within the image
  // Tokens of a line, where a token's line and column are positions (TokenAxis): the text goes on
  // behind the image's longer side. 0: they are not, its tokens follow each other as in a text.
  int64_t columns = 0;

  int64_t end() const { return first + count; }
};

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
  // For plans of drafters that read a model's hidden states: PlanFacts::given_width floats
  // for each token, the states behind the token before.
  std::span<const float> hidden = {};
  // For a plan that reads images (a tower): the tokens of the pass whose rows are wanted, rising;
  // they replace `want`.
  std::span<const int32_t> outputs = {};
  // Likewise: the patches of a line of the image. The pass has that image and nothing else.
  int64_t columns = 0;
  // The images of the whole text, in their order; those of other passes count for nothing. A pass
  // has all of an image, or goes on in one whose beginning is in the cache.
  std::span<const ImageTokens> images = {};
};

enum class Forward {
  Done,
  ContextFull,  // a sequence would get longer than ctx; nothing was computed
  CacheFull,    // the blocks of the cache are used up by other sequences; likewise
  Stopped,      // by the watch; the sequences keep their lengths, and there are no logits
};

struct EngineStats {
  int64_t passes = 0;        // calls of forward()
  int64_t tokens = 0;        // tokens computed
  int64_t weight_bytes = 0;  // weights read for them
  ExpertUse expert_use;      // activations of routed experts in them
  ExpertCacheUse expert_cache;
  ExpertGuestUse expert_guests;
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
  // The weights that are not what the plan says, in main memory and in those of GPUs: indices of
  // PlanView::blobs. Reads all of them, also those of the plan's file that are not in memory yet.
  // True in `stop` (null: nothing) ends it early. Not those of other hosts.
  Result<std::vector<uint32_t>> check_weights(const std::atomic<bool>* stop = nullptr);
  int threads() const;
  std::shared_ptr<ThreadPool> pool() const;
  Isa isa() const;
  std::vector<GpuUse> gpus() const;  // those in use; none for a CPU plan
  const Sizes& sizes() const;        // of this run
  const plan::MemoryEstimate& memory() const { return sizes().memory; }
  // For the user: "the weights do not fit the memory ...".
  const std::vector<std::string>& notes() const { return sizes().notes; }
  Precision precision() const { return sizes().precision; }
  plan::KvType kv_type() const { return sizes().shape.kv_type; }
  int64_t ctx() const { return sizes().shape.ctx; }
  int64_t max_batch() const { return sizes().shape.max_batch; }
  int64_t chunk_tokens() const { return sizes().shape.step_tokens; }
  int64_t max_outputs() const { return sizes().shape.step_outputs; }  // rows of logits in a pass
  // Tokens that BatchItem::rollback can ask for; all of a pass where there are no states.
  int64_t rollback_tokens() const;
  int64_t vocab_size() const { return plan().facts.vocab_size; }
  int64_t hidden_size() const { return plan().facts.hidden_size; }

  // What its texts keep, and what is kept of earlier ones.
  SequenceCache& cache() const;
  // The adapters of EngineOptions::lora, in its order, and all of them as strong as given there.
  const std::vector<LoraInfo>& lora() const;
  LoraChoice own_lora() const;
  // `lora`: chosen() of these (lora_choice.h).
  Sequence new_sequence(const std::string& owner = {}, LoraChoice lora = {}) {
    return Sequence(cache(), owner, std::move(lora));
  }
  // What runs the steps: their times and trace, activations by expert, rows of the cache wherever
  // they are. Not for running: forward() does.
  PlanRunner& runner() const;

  // Appends each item's tokens to its sequence and computes the wanted logits. At
  // most max_batch() items with different sequences and chunk_tokens() tokens in
  // all. Fails on token ids outside of the vocabulary, when the file shrank, or on
  // damaged data; the sequences keep their lengths then.
  // `before_filters` is called once a GPU has started, before any filter is queried.
  // `watch` (may be null) sees how far the step is and may end it.
  Result<Forward> forward(std::span<const BatchItem> items,
                          const std::function<void()>& before_filters = {},
                          const ForwardWatch* watch = nullptr);

  // The same in two calls, for plans over several hosts: while others compute a pass, this one
  // begins the next, so that up to most_forwards() are in flight.
  //
  //   engine.begin(a);  engine.begin(b);  engine.finish();   // of a
  //
  // begin() gives Done where the pass is in flight, else nothing was begun. finish() completes the
  // oldest pass; its logits stay valid until the next begin() or finish(). What a pass has of a
  // sequence counts at once for the next begin(): chunks of a text may follow each other, where
  // goes_ahead(); when one fails or is stopped, so do those behind it. A sequence in flight is not
  // to be cut, kept or moved; one that ends waits for all passes. All else of an engine but
  // hidden(), and the runner's visit_kv() and copy_states(), may be called between; forward() may
  // not.
  int64_t most_forwards() const;
  int64_t passes() const;  // in flight
  bool goes_ahead() const;
  Result<Forward> begin(std::span<const BatchItem> items,
                        const std::function<void()>& before_filters = {},
                        const ForwardWatch* watch = nullptr);
  Result<Forward> finish();
  void finish_all();  // what they give is lost

  // Logits of the last forward(): one row per wanted token, in order of the items.
  // Models without logits have their outputs here (PlanFacts::output_width()): a text's scores, or
  // hidden states. Valid until the next forward(). If only the best were requested, they may be
  // all that is here: has_logits() says so.
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

  const EngineStats& stats() const;

 private:
  struct State;
  explicit Engine(std::unique_ptr<State> state);
  struct Pass;
  Status read_kept(int64_t token, int64_t count);
  Result<Forward> begin_forward(Pass& pass, std::span<const BatchItem> items);
  Result<Forward> finish_forward(Pass& pass);
  void lose_followers(Pass& pass);
  Result<bool> compute(Pass& pass);
  Error named(const Error& error) const;
  std::unique_ptr<State> state_;
};

}  // namespace ktx::runtime

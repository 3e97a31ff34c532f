// What the texts of an engine keep: a Sequence is one text, and SequenceCache has the blocks and
// states of all of them, and those of earlier texts for reuse.
//
//   Sequence sequence(engine->cache());
//   engine->cache().reuse(sequence, prompt);            // what an earlier text left of it
//   ... engine->forward() ...
//   engine->cache().retire(std::move(sequence), text);  // for the next one
//
// Belongs to the thread that runs the engine. Where the rows lie on GPUs and other hosts,
// PlanRunner::visit_kv() and copy_states() reach them.
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "lib/runtime/cache/kv_pools.h"
#include "lib/runtime/cache/prefix_cache.h"
#include "lib/runtime/lora/lora_choice.h"

namespace ktx::runtime {

struct Batch;
struct BatchItem;
struct SequenceState;
class SequenceCache;

// A text in the cache. Frees its blocks when destroyed; the engine must live longer.
class Sequence {
 public:
  // `owner`: whose text it is. What is kept for reuse is found by the same owner alone, with the
  // same adapters.
  explicit Sequence(SequenceCache& cache, const std::string& owner = {}, LoraChoice lora = {});
  Sequence(Sequence&&) noexcept;
  Sequence& operator=(Sequence&&) noexcept;
  ~Sequence();

  int64_t length() const { return length_; }  // tokens in the cache
  // With those of passes in flight (Engine::begin).
  int64_t begun() const { return length_ + ahead_; }
  // Forgets all tokens from `length` on. No effect if `length` >= length(). Where layers have
  // windows, blocks that the text needs to go on from there may have gone: the sequence is then
  // emptied.
  // Some 64 tokens (plan::kKvWindowSlack) can always be taken back. Where layers have states of a
  // fixed size, it is as long as at the last place up to there that has states: the beginning of
  // the last step, a token of BatchItem::rollback, or a snapshot that the prefix cache does not
  // have yet.
  void truncate(int64_t length);
  bool can_truncate(int64_t length) const;  // to so many, and no fewer

  const LoraChoice& lora() const { return lora_; }
  const KvTables& tables() const { return tables_; }
  // Its states of a fixed size; kNoState where there are none.
  StateSlot states() const {
    return tables_.states.empty() ? kNoState : tables_.states.back().slot;
  }

 private:
  friend class SequenceCache;
  void set_cache(SequenceCache* cache);  // which knows its sequences
  SequenceCache* cache_ = nullptr;
  std::string owner_;  // with its adapters (prefix_owner)
  LoraChoice lora_;
  int64_t length_ = 0, ahead_ = 0;
  KvTables tables_;
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

class SequenceCache {
 public:
  // Before any sequence. `state_bytes`: of a sequence's states on all devices.
  void open(KvPools pools, uint64_t state_bytes);
  // Ends all passes in flight, for a sequence that is destroyed within one.
  void finish_by(std::function<void()> finish) { finish_ = std::move(finish); }

  KvPools& pools() { return pools_; }
  CacheState state() const;
  // Whether truncate() may take back more than it should.
  bool has_windows() const { return !pools_.passing().empty(); }
  bool has_states() const { return pools_.has_states(); }

  // Fills a sequence that holds the first length() tokens of `tokens` with what is kept of the
  // rest, the last token left out (its logits are wanted). Works at whole blocks: length() must be
  // a multiple of 64, else nothing happens.
  PrefixHit reuse(Sequence& sequence, std::span<const int32_t> tokens);
  PrefixBlocks find(std::span<const int32_t> tokens, const std::string& owner = {},
                    const LoraChoice& lora = {}) const {
    return prefixes_.find(tokens, prefix_owner(owner, lora));
  }
  // Keeps what the sequence holds for reuse, whole blocks only; `tokens` are those in it. The
  // sequence can go on.
  void keep(Sequence& sequence, std::span<const int32_t> tokens);
  // The same with the last, partly filled block, and ends the sequence.
  void retire(Sequence sequence, std::span<const int32_t> tokens);
  // Drops a kept text except blocks with other users.
  void forget(std::span<const int32_t> tokens, const std::string& owner = {},
              const LoraChoice& lora = {}) {
    prefixes_.forget(tokens, prefix_owner(owner, lora));
  }

  // For session files (session_file.h): the bytes of a sequence's rows of keys and values, on all
  // devices, the first position of them of each kind of blocks, and the bytes of its states.
  int64_t row_bytes(const Sequence& sequence) const;
  KvBegins begins(const Sequence& sequence) const;
  uint64_t state_bytes(const Sequence& of) const { return of.length_ == 0 ? 0 : state_bytes_; }
  // Lengthens a sequence by tokens whose rows and states the caller is going to fill. False when
  // there is no room, or a kind begins behind what the next token reads.
  bool extend_uncomputed(Sequence& sequence, int64_t tokens, KvBegins begins);

  // For Engine: room for the tokens of a pass, which from then on count as begun; false: there is
  // not enough, and nothing has changed. Then the end of the pass: where it was `computed`, the
  // sequences are longer.
  bool begin_pass(std::span<const BatchItem> items, Batch& batch);
  void end_pass(std::span<const BatchItem> items, Batch& batch, bool computed);

 private:
  friend class Sequence;
  bool take_blocks(std::span<const BatchItem> items, Batch& batch);
  bool take_states(std::span<const BatchItem> items, Batch& batch);  // forward_states.cc
  void take_rollback(const BatchItem& item, SequenceState& state);
  void take_snapshots(const BatchItem& item, SequenceState& state);
  void keep_states(std::span<const BatchItem> items, const Batch& batch);
  void give_back_states(std::span<const BatchItem> items, Batch& batch);

  KvPools pools_;
  PrefixCache prefixes_{pools_};
  std::set<Sequence*> sequences_;  // all that live
  uint64_t state_bytes_ = 0;
  std::function<void()> finish_;
};

}  // namespace ktx::runtime

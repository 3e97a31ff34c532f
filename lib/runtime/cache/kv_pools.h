// The pools of what sequences keep, one for each kind (lib/program/sequence_kinds.def), and the
// tables of a sequence in them.
//
// Token p is in block p / 64 of the table of each kind of blocks that the model has. All have
// `whole`, whose blocks are a few bytes that only number positions where no layer attends to all of
// them. Blocks that no later token reads go back to their pool, and are null in the table, so that
// a long context costs no more than a window.
//
// Not thread-safe: belongs to the thread that runs the engine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "lib/plan/memory.h"
#include "lib/runtime/cache/kv_cache.h"
#include "lib/runtime/cache/state_pool.h"
#include "lib/support/result.h"

namespace ktx::runtime {

using program::ByBlockKind;
using program::kBlockKinds;
using program::kPassingKinds;
using program::SequenceKind;

// What a sequence keeps. Tables of kinds that the model lacks are empty, those of others as long as
// `whole`, with nulls at their beginning where blocks have gone.
// `states` are those of the text so far, by rising position, the last one at its end; empty where
// the model has none.
struct KvTables : ByBlockKind<std::vector<std::byte*>> {
  std::vector<StateMark> states;
};

// One block of a sequence in each pool; null where it has gone.
using KvBlock = ByBlockKind<std::byte*>;

class KvPools {
 public:
  // As KvCache::create; `here`: which slots lie in this memory, empty: all.
  static Result<KvPools> create(std::span<const program::KvSlot> slots, plan::KvType type,
                                const plan::KvBlocks& blocks, const std::vector<bool>& here = {});

  KvCache& of(SequenceKind kind) { return pools_[kind]; }
  const KvCache& of(SequenceKind kind) const { return pools_[kind]; }
  SequenceKind kind_of(int32_t slot) const { return slot_kinds_[static_cast<size_t>(slot)]; }
  const kernels::KvLayout& layout(int32_t slot) const { return pools_.whole.layout(slot); }
  // Where the slot's part begins in a block of its pool.
  int64_t slot_offset(int32_t slot) const { return of(kind_of(slot)).slot_offset(slot); }
  int32_t slots() const { return static_cast<int32_t>(slot_kinds_.size()); }
  // The kinds of blocks that the model has, and those of them that go back.
  std::span<const SequenceKind> kinds() const { return kinds_; }
  std::span<const SequenceKind> passing() const { return kinds().subspan(1); }
  // There are no states until they are set, which is before any sequence.
  void set_states(StatePool states) { states_ = std::move(states); }
  StatePool& states() { return states_; }
  const StatePool& states() const { return states_; }
  bool has_states() const { return states_.has_states(); }

  // The first block that the token at position `length` reads, and the first one that a sequence of
  // so many tokens keeps (trim).
  int64_t first_read_block(SequenceKind kind, int64_t length) const;
  int64_t first_kept_block(SequenceKind kind, int64_t length) const;

  // As the functions of KvCache, for all tables at once.
  bool grow(KvTables& tables, int64_t tokens);
  void shrink(KvTables& tables, int64_t tokens);
  bool own(KvTables& tables, int64_t position);

  // Gives back the blocks of a kind before number `block`, or all that a sequence of `length`
  // tokens does not keep.
  void release_before(KvTables& tables, SequenceKind kind, int64_t block);
  void trim(KvTables& tables, int64_t length);
  // Whether the token at position `length` finds all that it reads.
  bool can_continue(const KvTables& tables, int64_t length) const;
  // The last place up to `length` from where the text can go on; 0: it is to be computed again.
  int64_t last_place(const KvTables& tables, int64_t length) const;
  // grow() for tokens whose rows the caller writes; kinds have their blocks from number `first` on.
  bool grow_from(KvTables& tables, int64_t tokens, const ByBlockKind<int64_t>& first);

  // The bytes of one token (visit_slot_rows) in the slots of that kind, on all devices.
  int64_t token_row_bytes(SequenceKind kind) const;

 private:
  ByBlockKind<KvCache> pools_;
  StatePool states_;
  std::vector<SequenceKind> slot_kinds_;
  plan::KvWidths widths_;
  std::vector<SequenceKind> kinds_ = {SequenceKind::Whole};
};

}  // namespace ktx::runtime

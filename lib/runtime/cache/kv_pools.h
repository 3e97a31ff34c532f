// The pools of what sequences keep, and the tables of a sequence in them.
//
//   whole    slots of layers that attend to every position: a sequence keeps all its blocks
//   window   slots of layers with a sliding or chunked window: blocks behind the window go back to
//            the pool (null in the table), so that a long context costs no more than the window
//   states   slots with the fixed-size states of a text at some of its places (state_pool.h)
//
// A model without windows has no blocks in `window`. Where all layers have one, the blocks of
// `whole` are a few bytes that only number positions. Token p is in block p / 64 of both tables.
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

enum class KvPool : uint8_t { Whole, Window };
inline constexpr KvPool kKvPools[] = {KvPool::Whole, KvPool::Window};

// What a sequence keeps; `window` is empty, or as long as `whole` with nulls at its beginning.
// `states` are those of the text so far, by rising position, the last one at its end; empty where
// the model has none.
struct KvTables {
  std::vector<std::byte*> whole;
  std::vector<std::byte*> window;
  std::vector<StateMark> states;
};

// One block of a sequence; `window` is null if the windows have moved past it.
struct KvBlock {
  std::byte* whole = nullptr;
  std::byte* window = nullptr;
  std::byte* in(KvPool pool) const { return pool == KvPool::Whole ? whole : window; }
};

class KvPools {
 public:
  // As KvCache::create; `here`: which slots lie in this memory, empty: all.
  static Result<KvPools> create(std::span<const program::KvSlot> slots, plan::KvType type,
                                const plan::KvBlocks& blocks, const std::vector<bool>& here = {});

  KvCache& of(KvPool pool) { return pool == KvPool::Whole ? whole_ : window_; }
  const KvCache& of(KvPool pool) const { return pool == KvPool::Whole ? whole_ : window_; }
  KvPool pool_of(int32_t slot) const { return slot_pools_[static_cast<size_t>(slot)]; }
  const kernels::KvLayout& layout(int32_t slot) const { return whole_.layout(slot); }
  // Where the slot's part begins in a block of its pool.
  int64_t slot_offset(int32_t slot) const { return of(pool_of(slot)).slot_offset(slot); }
  int32_t slots() const { return static_cast<int32_t>(slot_pools_.size()); }
  bool has_windows() const { return window_tokens_ > 0; }
  // Of no states until they are set, which is before any sequence.
  void set_states(StatePool states) { states_ = std::move(states); }
  StatePool& states() { return states_; }
  const StatePool& states() const { return states_; }
  bool has_states() const { return states_.has_states(); }

  // The first block that the token at position `length` reads in a window, and the first one that a
  // sequence of so many tokens keeps (trim).
  int64_t first_read_block(int64_t length) const;
  int64_t first_kept_block(int64_t length) const;

  // As the functions of KvCache, for both tables at once.
  bool grow(KvTables& tables, int64_t tokens);
  void shrink(KvTables& tables, int64_t tokens);
  bool own(KvTables& tables, int64_t position);

  // Gives back the blocks of windows before number `block`, or that a sequence of `length` tokens
  // does not keep.
  void release_windows_before(KvTables& tables, int64_t block);
  void trim(KvTables& tables, int64_t length) {
    release_windows_before(tables, first_kept_block(length));
  }
  // Whether the token at position `length` finds all that it reads of windows.
  bool can_continue(const KvTables& tables, int64_t length) const;
  // The last place up to `length` from where the text can go on; 0: it is to be computed again.
  int64_t last_place(const KvTables& tables, int64_t length) const;
  // grow() for tokens whose rows the caller writes; windows have their blocks from `first_window`
  // on.
  bool grow_from(KvTables& tables, int64_t tokens, int64_t first_window);

  int64_t token_row_bytes(KvPool pool) const;  // KvCache's, of the slots in that pool

 private:
  KvCache whole_, window_;
  StatePool states_;
  std::vector<KvPool> slot_pools_;
  int64_t window_tokens_ = 0;
};

}  // namespace ktx::runtime

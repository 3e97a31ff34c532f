// Paged KV cache: one pool of blocks, shared by all sequences. Paged attention reads it through
// block tables (kernels/attention/attention.h).
//
// A block holds kBlockTokens tokens of every KV slot (kernels/attention/kv_layout.h
// has the arrangement inside). A sequence owns a list of blocks, its block table;
// token p lies in block p / 64 at place p % 64, so sequences of any length share the
// pool without gaps. A sequence alone in a fresh pool gets neighbouring blocks.
//
// Blocks are reference-counted: a block may be in several tables and in the prefix cache
// (prefix_cache.h), and is free when its last user is gone. A writer must be the only user of a
// block; own() makes a copy otherwise (copy on write).
//
// Not thread-safe: changed only between steps, by the thread that runs the engine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "kernels/attention/kv_layout.h"
#include "lib/plan/memory.h"
#include "lib/plan/plan_format.h"
#include "lib/runtime/engine/arena.h"
#include "lib/support/result.h"

namespace ktx::runtime {

using VisitRows = std::function<Status(std::span<std::byte>)>;

// The first `rows` rows of a slot's part of a block: by head, keys, then values.
Status visit_slot_rows(const kernels::KvLayout& layout, std::byte* part, int64_t rows,
                       const VisitRows& call);

class KvCache {
 public:
  static constexpr int64_t kBlockTokens = plan::kKvBlockTokens;

  KvCache() = default;
  // Memory for `blocks` blocks. A slot that cannot have `type` gets the type that
  // plan::kv_type_for gives.
  // `here`: which slots lie in this memory; those of other devices take no bytes, but
  // a block of theirs has the number it has here. Empty: all.
  static Result<KvCache> create(std::span<const program::KvSlot> slots, plan::KvType type,
                                int64_t blocks, const std::vector<bool>& here = {});

  int64_t total_blocks() const { return total_blocks_; }
  int64_t free_blocks() const { return static_cast<int64_t>(free_.size()); }
  int64_t idle_blocks() const { return idle_; }  // kept, without users
  int64_t block_bytes() const { return block_bytes_; }
  // 0 to total_blocks() - 1.
  int64_t block_number(const std::byte* block) const { return static_cast<int64_t>(index(block)); }
  std::byte* block(int64_t number) const { return memory_.data() + number * block_bytes_; }

  // The arrangement of a slot's part, and where in a block it begins.
  int32_t slots() const { return static_cast<int32_t>(layouts_.size()); }
  const kernels::KvLayout& layout(int32_t slot) const { return layouts_[slot]; }
  int64_t slot_offset(int32_t slot) const { return offsets_[slot]; }

  // Asked when blocks run out: gives a block back to the pool, or says false.
  void set_reclaim(std::function<bool()> reclaim) { reclaim_ = std::move(reclaim); }

  // Called whenever a block is copied, with its numbers: for parts on other devices and hosts.
  using CopyBlock = std::function<void(int64_t to, int64_t from)>;
  void add_copy(CopyBlock copy) { copies_elsewhere_.push_back(std::move(copy)); }
  void drop_copies() { copies_elsewhere_.clear(); }

  // Makes `table` long enough for `tokens` tokens. False, and the table as before, when
  // the pool has too few blocks left.
  bool grow(std::vector<std::byte*>& table, int64_t tokens);
  // Gives back the blocks that `tokens` tokens do not need.
  void shrink(std::vector<std::byte*>& table, int64_t tokens);
  // Makes the table the only user of the block that holds token `position`, if it has
  // one: before tokens are written there. False when a copy needs a block and none is left.
  bool own(std::vector<std::byte*>& table, int64_t position);

  // One more user of a block, and one less.
  void share(std::byte* block);
  void release(std::byte* block);
  // The prefix cache as a user, once per block.
  void keep(std::byte* block);
  void drop(std::byte* block);
  int32_t users(std::byte* block) const { return users_[index(block)]; }
  // A block of the caller's own; null when there is none.
  std::byte* take();
  void copy(std::byte* to, const std::byte* from) const;

 private:
  size_t index(const std::byte* block) const {
    return static_cast<size_t>((block - memory_.data()) / block_bytes_);
  }

  Arena memory_;
  std::vector<kernels::KvLayout> layouts_;
  std::vector<int64_t> offsets_;
  int64_t block_bytes_ = 0;
  int64_t total_blocks_ = 0;
  std::vector<std::byte*> free_;  // taken from the back
  std::vector<int32_t> users_;    // by block
  std::vector<uint8_t> kept_;     // by block: whether the prefix cache is one of them
  int64_t idle_ = 0;
  std::function<bool()> reclaim_;
  std::vector<CopyBlock> copies_elsewhere_;
};

constexpr int64_t blocks_for(int64_t tokens) {
  return (tokens + KvCache::kBlockTokens - 1) / KvCache::kBlockTokens;
}

}  // namespace ktx::runtime

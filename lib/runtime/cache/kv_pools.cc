#include "lib/runtime/cache/kv_pools.h"

#include <algorithm>

namespace ktx::runtime {

Result<KvPools> KvPools::create(std::span<const program::KvSlot> slots, plan::KvType type,
                                const plan::KvBlocks& blocks, const std::vector<bool>& here) {
  KvPools pools;
  pools.widths_ = plan::kv_widths(slots);
  for (const program::KvSlot& slot : slots) pools.slot_kinds_.push_back(slot.kind());
  for (const SequenceKind kind : kPassingKinds) {
    if (pools.widths_[kind] > 0) pools.kinds_.push_back(kind);
  }
  for (const SequenceKind kind : pools.kinds_) {
    std::vector<bool> of_kind;
    for (size_t i = 0; i < slots.size(); ++i) {
      of_kind.push_back((here.empty() || here[i]) && slots[i].kind() == kind);
    }
    pools.pools_[kind] =
        KTX_TRY(KvCache::create(slots, type, static_cast<int64_t>(blocks[kind]), of_kind));
  }
  return pools;
}

int64_t KvPools::first_read_block(SequenceKind kind, int64_t length) const {
  return program::info(kind).first_read(length, widths_[kind]) / KvCache::kBlockTokens;
}

int64_t KvPools::first_kept_block(SequenceKind kind, int64_t length) const {
  return first_read_block(kind, std::max<int64_t>(0, length - plan::kKvWindowSlack));
}

bool KvPools::grow(KvTables& tables, int64_t tokens) {
  return grow_from(tables, tokens, {});
}

bool KvPools::grow_from(KvTables& tables, int64_t tokens, const ByBlockKind<int64_t>& first) {
  const auto before = static_cast<int64_t>(tables.whole.size()) * KvCache::kBlockTokens;
  if (!pools_.whole.grow(tables.whole, tokens)) return false;
  for (const SequenceKind kind : passing()) {
    std::vector<std::byte*>& table = tables[kind];
    while (table.size() < tables.whole.size()) {
      const bool wanted = static_cast<int64_t>(table.size()) >= first[kind];
      std::byte* const block = wanted ? pools_[kind].take() : nullptr;
      if (wanted && block == nullptr) {
        shrink(tables, before);
        return false;
      }
      table.push_back(block);
    }
  }
  return true;
}

void KvPools::shrink(KvTables& tables, int64_t tokens) {
  pools_.whole.shrink(tables.whole, tokens);
  for (const SequenceKind kind : passing()) {
    std::vector<std::byte*>& table = tables[kind];
    for (; table.size() > tables.whole.size(); table.pop_back()) {
      if (table.back() != nullptr) pools_[kind].release(table.back());
    }
  }
  while (!tables.states.empty() && tables.states.back().position > tokens) {
    states_.release(tables.states.back().slot);
    tables.states.pop_back();
  }
}

bool KvPools::own(KvTables& tables, int64_t position) {
  return std::ranges::all_of(
      kinds(), [&](SequenceKind kind) { return pools_[kind].own(tables[kind], position); });
}

void KvPools::release_before(KvTables& tables, SequenceKind kind, int64_t block) {
  std::vector<std::byte*>& table = tables[kind];
  // From the back: what is before a null went earlier.
  int64_t b = std::min<int64_t>(block, static_cast<int64_t>(table.size())) - 1;
  for (; b >= 0 && table[b] != nullptr; --b) {
    pools_[kind].release(table[b]);
    table[b] = nullptr;
  }
}

void KvPools::trim(KvTables& tables, int64_t length) {
  for (const SequenceKind kind : passing()) {
    release_before(tables, kind, first_kept_block(kind, length));
  }
}

bool KvPools::can_continue(const KvTables& tables, int64_t length) const {
  return std::ranges::all_of(passing(), [&](SequenceKind kind) {
    // The first block that the next token reads is the first that may be gone.
    const auto first = static_cast<size_t>(first_read_block(kind, length));
    return first >= tables[kind].size() || tables[kind][first] != nullptr;
  });
}

int64_t KvPools::last_place(const KvTables& tables, int64_t length) const {
  if (has_states()) {
    const auto after = std::find_if(tables.states.begin(), tables.states.end(),
                                    [&](const StateMark& m) { return m.position > length; });
    length = after == tables.states.begin() ? 0 : std::prev(after)->position;
  }
  return can_continue(tables, length) ? length : 0;
}

int64_t KvPools::token_row_bytes(SequenceKind kind) const {
  int64_t bytes = 0;
  for (int32_t slot = 0; slot < slots(); ++slot) {
    if (kind_of(slot) != kind) continue;
    const kernels::KvLayout& layout = pools_.whole.layout(slot);
    bytes += layout.kv_heads * (layout.key_row_bytes() + layout.value_row_bytes());
  }
  return bytes;
}

}  // namespace ktx::runtime

#include "lib/runtime/cache/kv_pools.h"

#include <algorithm>

namespace ktx::runtime {
Result<KvPools> KvPools::create(std::span<const program::KvSlot> slots, plan::KvType type,
                                const plan::KvBlocks& blocks, const std::vector<bool>& here) {
  KvPools pools;
  pools.window_tokens_ = plan::widest_window(slots);
  std::vector<bool> in_whole, in_window;
  for (size_t i = 0; i < slots.size(); ++i) {
    const bool is_here = here.empty() || here[i];
    pools.slot_pools_.push_back(slots[i].window > 0 ? KvPool::Window : KvPool::Whole);
    in_whole.push_back(is_here && slots[i].window == 0);
    in_window.push_back(is_here && slots[i].window > 0);
  }
  pools.whole_ = KTX_TRY(
      KvCache::create(slots, type, static_cast<int64_t>(blocks.whole), std::move(in_whole)));
  if (!pools.has_windows()) return pools;
  pools.window_ = KTX_TRY(
      KvCache::create(slots, type, static_cast<int64_t>(blocks.window), std::move(in_window)));
  return pools;
}

int64_t KvPools::first_read_block(int64_t length) const {
  return std::max<int64_t>(0, length - window_tokens_ + 1) / KvCache::kBlockTokens;
}

int64_t KvPools::first_kept_block(int64_t length) const {
  return first_read_block(std::max<int64_t>(0, length - plan::kKvWindowSlack));
}

bool KvPools::grow(KvTables& tables, int64_t tokens) {
  return grow_from(tables, tokens, static_cast<int64_t>(tables.window.size()));
}

bool KvPools::grow_from(KvTables& tables, int64_t tokens, int64_t first_window) {
  const auto before = static_cast<int64_t>(tables.whole.size()) * KvCache::kBlockTokens;
  if (!whole_.grow(tables.whole, tokens)) return false;
  if (!has_windows()) return true;
  while (tables.window.size() < tables.whole.size()) {
    const bool wanted = static_cast<int64_t>(tables.window.size()) >= first_window;
    std::byte* const block = wanted ? window_.take() : nullptr;
    if (wanted && block == nullptr) {
      shrink(tables, before);
      return false;
    }
    tables.window.push_back(block);
  }
  return true;
}

void KvPools::shrink(KvTables& tables, int64_t tokens) {
  whole_.shrink(tables.whole, tokens);
  while (tables.window.size() > tables.whole.size()) {
    if (tables.window.back() != nullptr) window_.release(tables.window.back());
    tables.window.pop_back();
  }
  while (!tables.states.empty() && tables.states.back().position > tokens) {
    states_.release(tables.states.back().slot);
    tables.states.pop_back();
  }
}

bool KvPools::own(KvTables& tables, int64_t position) {
  if (!whole_.own(tables.whole, position)) return false;
  return !has_windows() || window_.own(tables.window, position);
}

void KvPools::release_windows_before(KvTables& tables, int64_t block) {
  // From the back: what is before a null went earlier.
  int64_t b = std::min<int64_t>(block, static_cast<int64_t>(tables.window.size())) - 1;
  for (; b >= 0 && tables.window[b] != nullptr; --b) {
    window_.release(tables.window[b]);
    tables.window[b] = nullptr;
  }
}

bool KvPools::can_continue(const KvTables& tables, int64_t length) const {
  if (!has_windows()) return true;
  // The first block that the next token reads is the first that may be gone.
  const auto first = static_cast<size_t>(first_read_block(length));
  return first >= tables.window.size() || tables.window[first] != nullptr;
}

int64_t KvPools::last_place(const KvTables& tables, int64_t length) const {
  if (has_states()) {
    const auto after = std::find_if(tables.states.begin(), tables.states.end(),
                                    [&](const StateMark& m) { return m.position > length; });
    length = after == tables.states.begin() ? 0 : std::prev(after)->position;
  }
  return can_continue(tables, length) ? length : 0;
}

int64_t KvPools::token_row_bytes(KvPool pool) const {
  int64_t bytes = 0;
  for (int32_t slot = 0; slot < slots(); ++slot) {
    if (pool_of(slot) != pool) continue;
    const kernels::KvLayout& layout = whole_.layout(slot);
    bytes += layout.kv_heads * (layout.key_row_bytes() + layout.value_row_bytes());
  }
  return bytes;
}

}  // namespace ktx::runtime

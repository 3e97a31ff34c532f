#include "lib/runtime/cache/kv_cache.h"

#include <algorithm>
#include <cstring>

#include "lib/support/byte_reader.h"

namespace ktx::runtime {
namespace {

kernels::KvType kernel_type(plan::KvType type) {
  if (type == plan::KvType::F32) return kernels::KvType::F32;
  return type == plan::KvType::F16 ? kernels::KvType::F16 : kernels::KvType::Q8_0;
}

}  // namespace

Result<KvCache> KvCache::create(std::span<const program::KvSlot> slots, plan::KvType type,
                                int64_t blocks, const std::vector<bool>& here) {
  KvCache cache;
  for (size_t i = 0; i < slots.size(); ++i) {
    const program::KvSlot& slot = slots[i];
    kernels::KvLayout layout;
    layout.type = kernel_type(plan::kv_type_for(slot, type));
    layout.block_tokens = kBlockTokens;
    layout.kv_heads = slot.kv_heads;
    layout.key_dim = slot.key_dim;
    layout.value_dim = slot.value_dim;
    cache.layouts_.push_back(layout);
    cache.offsets_.push_back(cache.block_bytes_);
    if (here.empty() || here[i]) cache.block_bytes_ += layout.slot_bytes();
  }
  // Blocks are distinguished by their place, also when nothing of them is here, or there is no
  // attention.
  cache.block_bytes_ = std::max<int64_t>(cache.block_bytes_, 64);
  const auto bytes = checked_mul(cache.block_bytes_, blocks);
  if (blocks < 0 || !bytes) return Error{"KV cache: its size does not fit 64 bits"};
  cache.memory_ = KTX_TRY(Arena::allocate(*bytes, "KV cache"));
  cache.total_blocks_ = blocks;
  cache.users_.assign(blocks, 0);
  cache.kept_.assign(blocks, 0);
  cache.free_.reserve(blocks);
  for (int64_t block = blocks - 1; block >= 0; --block) {
    cache.free_.push_back(cache.memory_.data() + block * cache.block_bytes_);
  }
  return cache;
}

std::byte* KvCache::take() {
  if (free_.empty() && !(reclaim_ && reclaim_())) return nullptr;
  KTX_ASSERT(!free_.empty());
  std::byte* block = free_.back();
  free_.pop_back();
  users_[index(block)] = 1;
  return block;
}

void KvCache::share(std::byte* block) {
  const size_t i = index(block);
  if (users_[i]++ == 1 && kept_[i]) --idle_;
}

void KvCache::release(std::byte* block) {
  const size_t i = index(block);
  KTX_ASSERT(users_[i] > 0);
  if (--users_[i] == 0) free_.push_back(block);
  if (users_[i] == 1 && kept_[i]) ++idle_;
}

void KvCache::keep(std::byte* block) {
  const size_t i = index(block);
  KTX_ASSERT(!kept_[i] && users_[i] > 0);
  kept_[i] = 1;
  ++users_[i];
}

void KvCache::drop(std::byte* block) {
  const size_t i = index(block);
  KTX_ASSERT(kept_[i]);
  if (users_[i] == 1) --idle_;
  kept_[i] = 0;
  release(block);
}

void KvCache::copy(std::byte* to, const std::byte* from) const {
  std::memcpy(to, from, static_cast<size_t>(block_bytes_));
  for (const CopyBlock& copy : copies_elsewhere_) copy(block_number(to), block_number(from));
}

bool KvCache::grow(std::vector<std::byte*>& table, int64_t tokens) {
  const size_t before = table.size();
  while (static_cast<int64_t>(table.size()) < blocks_for(tokens)) {
    std::byte* block = take();
    if (block == nullptr) {
      shrink(table, static_cast<int64_t>(before) * kBlockTokens);
      return false;
    }
    table.push_back(block);
  }
  return true;
}

void KvCache::shrink(std::vector<std::byte*>& table, int64_t tokens) {
  while (static_cast<int64_t>(table.size()) > blocks_for(tokens)) {
    release(table.back());
    table.pop_back();
  }
}

bool KvCache::own(std::vector<std::byte*>& table, int64_t position) {
  const auto at = static_cast<size_t>(position / kBlockTokens);
  if (at >= table.size() || users(table[at]) == 1) return true;
  std::byte* block = take();
  if (block == nullptr) return false;
  copy(block, table[at]);
  release(table[at]);
  table[at] = block;
  return true;
}

Status visit_slot_rows(const kernels::KvLayout& layout, std::byte* part, int64_t rows,
                       const VisitRows& call) {
  for (int64_t head = 0; head < layout.kv_heads; ++head) {
    KTX_TRY(call(
        {part + layout.key_offset(head, 0), static_cast<size_t>(rows * layout.key_row_bytes())}));
  }
  for (int64_t head = 0; head < layout.kv_heads && layout.value_dim > 0; ++head) {
    KTX_TRY(call({part + layout.value_offset(head, 0),
                  static_cast<size_t>(rows * layout.value_row_bytes())}));
  }
  return {};
}

}  // namespace ktx::runtime

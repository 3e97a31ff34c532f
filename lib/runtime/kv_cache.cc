#include "lib/runtime/kv_cache.h"

#include "lib/support/byte_reader.h"

namespace ktx::runtime {
namespace {

kernels::KvType kernel_type(plan::KvType type) {
  if (type == plan::KvType::F32) return kernels::KvType::F32;
  return type == plan::KvType::F16 ? kernels::KvType::F16 : kernels::KvType::Q8_0;
}

}  // namespace

Result<KvCache> KvCache::create(std::span<const plan::KvSlotRecord> slots, plan::KvType type,
                                int64_t blocks) {
  KvCache cache;
  for (const plan::KvSlotRecord& slot : slots) {
    kernels::KvLayout layout;
    layout.type = kernel_type(plan::kv_type_for(slot, type));
    layout.block_tokens = kBlockTokens;
    layout.kv_heads = slot.kv_heads;
    layout.key_dim = slot.key_dim;
    layout.value_dim = slot.value_dim;
    cache.layouts_.push_back(layout);
    cache.offsets_.push_back(cache.block_bytes_);
    cache.block_bytes_ += layout.slot_bytes();
  }
  const auto bytes = checked_mul(cache.block_bytes_, blocks);
  if (blocks < 0 || !bytes) return Error{"KV cache: its size does not fit 64 bits"};
  cache.memory_ = KTX_TRY(Arena::allocate(*bytes, "KV cache"));
  cache.total_blocks_ = blocks;
  cache.free_.reserve(blocks);
  for (int64_t block = blocks - 1; block >= 0; --block) {
    cache.free_.push_back(cache.memory_.data() + block * cache.block_bytes_);
  }
  return cache;
}

bool KvCache::grow(std::vector<std::byte*>& table, int64_t tokens) {
  const int64_t missing = blocks_for(tokens) - static_cast<int64_t>(table.size());
  if (missing > free_blocks()) return false;
  for (int64_t i = 0; i < missing; ++i) {
    table.push_back(free_.back());
    free_.pop_back();
  }
  return true;
}

void KvCache::shrink(std::vector<std::byte*>& table, int64_t tokens) {
  while (static_cast<int64_t>(table.size()) > blocks_for(tokens)) {
    free_.push_back(table.back());
    table.pop_back();
  }
}

}  // namespace ktx::runtime

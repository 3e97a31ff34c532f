// KV caches for the tests of attention on a GPU: filled by the scalar store, blocks in mixed order.
#pragma once

#include "kernels/attention/attention.h"
#include "kernels/cuda/attention/cuda_attention.h"
#include "tests/kernels/cuda_cases.h"

namespace ktx::kernels {

// A cache of blocks in mixed order, filled with keys and values of every position that is
// seen, and one step of tokens on top.
struct CacheStep {
  KvLayout layout;
  std::vector<std::byte> pool;
  std::vector<int32_t> table;  // [sequences, stride]
  int64_t stride = 0, block_bytes = 0, slot_offset = 128;
  std::vector<int32_t> sequence, position;
  std::vector<std::vector<std::byte*>> host_tables;
  std::vector<std::byte* const*> tables;

  // lengths: positions of each sequence; the last `news` of each are the step's tokens.
  // Elements are normal, times `scale`.
  CacheStep(Random& random, const KvLayout& of, const std::vector<int32_t>& lengths, int32_t news,
            float scale = 1)
      : CacheStep(random, of, lengths, std::vector<int32_t>(lengths.size(), news), scale) {}
  CacheStep(Random& random, const KvLayout& of, const std::vector<int32_t>& lengths,
            const std::vector<int32_t>& news, float scale = 1)
      : layout(of) {
    block_bytes = slot_offset + layout.slot_bytes() + 192;
    int32_t blocks = 0;
    for (int32_t length : lengths) stride = std::max<int64_t>(stride, (length + 63) / 64 + 1);
    table.assign(lengths.size() * static_cast<size_t>(stride), 0);
    for (size_t s = 0; s < lengths.size(); ++s) {
      for (int32_t b = 0; b < (lengths[s] + 63) / 64; ++b)
        table[s * static_cast<size_t>(stride) + static_cast<size_t>(b)] = blocks++;
    }
    for (int32_t& block : table) block = blocks - 1 - std::min(block, blocks - 1);
    pool.assign(static_cast<size_t>(blocks * block_bytes), std::byte{0xFF});  // NaN where unwritten
    host_tables.resize(lengths.size());
    for (size_t s = 0; s < lengths.size(); ++s) {
      for (int64_t b = 0; b < stride; ++b) {
        host_tables[s].push_back(pool.data() +
                                 table[s * static_cast<size_t>(stride) + static_cast<size_t>(b)] *
                                     block_bytes);
      }
      tables.push_back(host_tables[s].data());
    }
    // All positions go in through the scalar store.
    for (size_t s = 0; s < lengths.size(); ++s) {
      for (int32_t p = 0; p < lengths[s]; ++p) {
        const std::vector<float> key = random.normals(layout.kv_heads * layout.key_dim, scale);
        const std::vector<float> value = random.normals(layout.kv_heads * layout.value_dim, scale);
        const auto index = static_cast<int32_t>(s);
        KvStoreArgs store;
        store.key = key.data();
        store.value = value.data();
        store.kv = view();
        store.kv.sequence = &index;
        store.kv.position = &p;
        store.token_end = 1;
        (*find_kv_store("kv_store", Isa::Scalar))(store);
        if (p >= lengths[s] - news[s]) {
          sequence.push_back(index);
          position.push_back(p);
        }
      }
    }
  }
  KvView view() const {
    KvView view;
    view.layout = layout;
    view.slot_offset = slot_offset;
    view.tables = tables.data();
    view.sequence = sequence.data();
    view.position = position.data();
    return view;
  }
  int64_t tokens() const { return static_cast<int64_t>(position.size()); }
};

struct GpuCache {
  Gpu<std::byte> pool;
  Gpu<int32_t> table, sequence, position;
  CudaKvView view;
  explicit GpuCache(const CacheStep& step)
      : pool(step.pool), table(step.table), sequence(step.sequence), position(step.position) {
    view.layout = step.layout;
    view.pool = pool.data();
    view.block_bytes = step.block_bytes;
    view.slot_offset = step.slot_offset;
    view.table = table.data();
    view.table_stride = step.stride;
    view.sequence = sequence.data();
    view.position = position.data();
  }
};

inline constexpr KvType kKvTypes[] = {KvType::F32, KvType::F16, KvType::Q8_0};
inline const char* type_name(KvType type) {
  return type == KvType::F32 ? "F32" : type == KvType::F16 ? "F16" : "Q8_0";
}

}  // namespace ktx::kernels

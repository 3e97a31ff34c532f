// The address of a row in the cache. Private to kernels/attention.
#pragma once

#include "kernels/attention/kv_layout.h"

namespace ktx::kernels {

// Where the slot's part of the block begins that holds a position (or an entry).
static inline std::byte* block_part(const KvView& kv, int32_t sequence, int64_t position) {
  const int64_t block = (position / kv.layout.block_tokens + 1) * kv.layout.row_blocks - 1;
  return kv.tables[sequence][block] + kv.slot_offset;
}

static inline std::byte* key_row(const KvView& kv, int32_t sequence, int64_t head,
                                 int64_t position) {
  return block_part(kv, sequence, position) +
         kv.layout.key_offset(head, position % kv.layout.block_tokens);
}

static inline std::byte* value_row(const KvView& kv, int32_t sequence, int64_t head,
                                   int64_t position) {
  return block_part(kv, sequence, position) +
         kv.layout.value_offset(head, position % kv.layout.block_tokens);
}

}  // namespace ktx::kernels

// The address of a row in the cache. Private to kernels/attention.
#pragma once

#include "kernels/attention/kv_layout.h"

namespace ktx::kernels {

static inline std::byte* key_row(const KvView& kv, int32_t sequence, int64_t head,
                                 int64_t position) {
  return kv.tables[sequence][position / kv.layout.block_tokens] + kv.slot_offset +
         kv.layout.key_offset(head, position % kv.layout.block_tokens);
}

static inline std::byte* value_row(const KvView& kv, int32_t sequence, int64_t head,
                                   int64_t position) {
  return kv.tables[sequence][position / kv.layout.block_tokens] + kv.slot_offset +
         kv.layout.value_offset(head, position % kv.layout.block_tokens);
}

}  // namespace ktx::kernels

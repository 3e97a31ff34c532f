// The memory formulas of a plan, evaluated: one piece of code for placement, for
// --estimate and for the loader.
//
//   ArenaLayout arena = KTX_TRY(lay_out_arena(plan->buffers, 512, 1));
//   base + arena.offsets[value.buffer]                // where a value lies
//   kv_block_bytes(slot, KvType::F16)                 // 64 tokens of one layer
//
// All arithmetic is checked: absurd numbers give an error, never a small sum.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "lib/plan/plan_format.h"
#include "lib/support/result.h"

namespace ktx::plan {

inline constexpr int64_t kKvBlockTokens = 64;
inline constexpr uint64_t kArenaAlignment = 64;

enum class KvType : uint8_t { F32 = 0, F16 = 1, Q8_0 = 2 };
std::string_view name(KvType type);  // "F32", "F16", "Q8_0"
std::optional<KvType> kv_type_from_name(std::string_view name);

struct ArenaLayout {
  std::vector<uint64_t> offsets;  // one per buffer, multiples of 64
  uint64_t total_bytes = 0;
};

// The arena for at most `tokens` tokens and `outputs` logits rows in a step.
Result<ArenaLayout> lay_out_arena(std::span<const BufferRecord> buffers, int64_t tokens,
                                  int64_t outputs);

// The bytes that one row of a value takes in its buffer.
uint64_t value_row_bytes(const ValueRecord& value);

// The type a slot gets when `asked` is wanted: Q8_0 needs key and value widths that
// are multiples of 32, else the slot has F16.
KvType kv_type_for(const KvSlotRecord& slot, KvType asked);
// Bytes of a head's key (or value) of `dim` elements; dim a multiple of 32 for Q8_0.
uint64_t kv_head_bytes(int64_t dim, KvType type);
// Keys and values of one token in one slot, and of kKvBlockTokens. `type` as asked.
uint64_t kv_token_bytes(const KvSlotRecord& slot, KvType type);
uint64_t kv_block_bytes(const KvSlotRecord& slot, KvType type);

// The budget does not hold one block of all slots; says which one would hold a context.
Error kv_budget_below_a_block(uint64_t budget, uint64_t block_bytes, int64_t ctx);

struct RunShape {
  int64_t ctx = 4096;         // tokens per sequence
  int64_t max_batch = 1;      // sequences
  int64_t step_tokens = 512;  // most tokens of a step (prefill chunk)
  int64_t step_outputs = 1;   // most logits rows of a step
  KvType kv_type = KvType::F16;
};

struct MemoryEstimate {
  uint64_t weight_bytes = 0;   // segments that steps read
  uint64_t carried_bytes = 0;  // in the file, never read by a step
  uint64_t arena_bytes = 0;
  uint64_t kv_token_bytes = 0;  // of one token, all slots
  uint64_t kv_blocks = 0;       // per slot: blocks for max_batch sequences of ctx tokens
  uint64_t kv_bytes = 0;
  uint64_t total_bytes = 0;  // weights + arena + kv
};

Result<MemoryEstimate> estimate_memory(std::span<const SegmentRecord> segments,
                                       std::span<const BufferRecord> buffers,
                                       std::span<const KvSlotRecord> kv_slots,
                                       const RunShape& shape);

}  // namespace ktx::plan

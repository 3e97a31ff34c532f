// The memory formulas of a plan, evaluated: one piece of code for placement, for
// --estimate and for the loader.
//
//   ArenaLayout arena = KTX_TRY(lay_out_arena(program.buffers, 512, 1));
//   base + arena.offsets[value.buffer]                // where a value lies
//   kv_block_bytes(slot, KvType::F16)                 // 64 tokens of one layer
//
// All arithmetic is checked: absurd numbers give an error, never a wrapped sum.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "lib/program/program.h"
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
Result<ArenaLayout> lay_out_arena(std::span<const program::Buffer> buffers, int64_t tokens,
                                  int64_t outputs);

// The type a slot gets if `asked` is requested: Q8_0 needs key and value widths that
// are multiples of 32, else the slot has F16.
KvType kv_type_for(const program::KvSlot& slot, KvType asked);
// Bytes of a head's key (or value) of `dim` elements; dim a multiple of 32 for Q8_0.
uint64_t kv_head_bytes(int64_t dim, KvType type);
// Keys and values of one token in one slot, and of kKvBlockTokens. `type` as asked.
uint64_t kv_token_bytes(const program::KvSlot& slot, KvType type);
uint64_t kv_block_bytes(const program::KvSlot& slot, KvType type);

struct RunShape {
  int64_t ctx = 4096;         // tokens per sequence
  int64_t max_batch = 1;      // sequences
  int64_t step_tokens = 512;  // most tokens of a step (prefill chunk)
  int64_t step_outputs = 1;   // most logits rows of a step
  KvType kv_type = KvType::F16;
  uint64_t state_bytes = 0;  // of a slot of states (state_layout.h), where they are
  // Last tokens of a sequence that can be taken back one by one where there are states: draft
  // tokens.
  int64_t rollback_tokens = 0;

  // Slots of states that a running sequence needs.
  uint64_t running_states() const;
};

// What a run's sequences keep, by kind (lib/program/sequence_kinds.def): blocks, and slots of
// states.
struct KvBlocks : program::ByBlockKind<uint64_t> {
  uint64_t states = 0;
  KvBlocks passing() const;  // of kinds whose blocks go back to the pool; no states
};

// Bytes of one token in the slots of each kind.
struct KvTokenBytes : program::ByBlockKind<uint64_t> {
  // The bytes of all blocks; nothing when that is 2^64 or more.
  std::optional<uint64_t> times(const KvBlocks& blocks) const;
};
KvTokenBytes kv_token_bytes(std::span<const program::KvSlot> slots, KvType type);

// Tokens that a sequence keeps beyond those that its next token reads, so that wrong draft tokens
// can be taken back.
inline constexpr int64_t kKvWindowSlack = 64;

// Slots of states of a running sequence: before a pass, and behind it (and one for each token that
// can be taken back); and such as stay as snapshots of texts.
inline constexpr uint64_t kRunningStates = 2;
inline constexpr uint64_t kSnapshots = 4;

inline uint64_t RunShape::running_states() const {
  return kRunningStates + static_cast<uint64_t>(rollback_tokens);
}

// The widest window of the slots of each kind; 0: it has none. All slots of a kind keep as much.
using KvWidths = program::ByBlockKind<int64_t>;
KvWidths kv_widths(std::span<const program::KvSlot> slots);

// Blocks and slots for max_batch sequences of ctx tokens: of kinds whose blocks go back what the
// sequences and the chunk of one step can hold at once, and the end of one more text for each
// sequence (prefix cache); never more than for whole contexts. Nothing when that is too many.
std::optional<KvBlocks> kv_blocks(const KvWidths& widths, const RunShape& shape);
// The same within `budget` bytes; 0: as many as needed. An error says which budget would do.
Result<KvBlocks> kv_blocks(const KvWidths& widths, const RunShape& shape, const KvTokenBytes& token,
                           uint64_t budget);

struct MemoryEstimate {
  uint64_t weight_bytes = 0;   // that steps read
  uint64_t carried_bytes = 0;  // of a plan: in the file, never read by a step
  uint64_t arena_bytes = 0;
  KvTokenBytes kv_token;
  KvBlocks kv_blocks;  // for max_batch sequences of ctx tokens
  uint64_t kv_bytes = 0;
  uint64_t state_bytes = 0;  // of all slots
  uint64_t total_bytes = 0;  // weights + arena + kv + states
  // Memory that a run takes beside the weights, which are mapped.
  uint64_t working_bytes() const { return arena_bytes + kv_bytes + state_bytes; }
};

// For a model, or for the slots of one of several devices; `widths` are those of all.
Result<MemoryEstimate> estimate_memory(uint64_t weight_bytes,
                                       std::span<const program::Buffer> buffers,
                                       std::span<const program::KvSlot> kv_slots,
                                       const KvWidths& widths, const RunShape& shape);

}  // namespace ktx::plan

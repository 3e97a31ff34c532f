#include "lib/plan/memory.h"

#include <fmt/format.h>

#include "lib/formats/dtype.h"
#include "lib/formats/value_row.h"
#include "lib/support/byte_reader.h"
#include "lib/support/strings.h"

namespace ktx::plan {
namespace {

struct KvTypeInfo {
  KvType type;
  std::string_view name;
  DType dtype;
};
constexpr KvTypeInfo kKvTypes[] = {
    {KvType::F32, "F32", DType::F32},
    {KvType::F16, "F16", DType::F16},
    {KvType::Q8_0, "Q8_0", DType::Q8_0},
};

Error too_much(std::string_view what) {
  return Error{
      fmt::format("{} need more than 2^64 bytes; ask for a smaller context or batch", what)};
}

}  // namespace

std::string_view name(KvType type) {
  return kKvTypes[static_cast<int>(type)].name;
}

std::optional<KvType> kv_type_from_name(std::string_view name) {
  for (const KvTypeInfo& row : kKvTypes) {
    if (row.name == name) return row.type;
  }
  return std::nullopt;
}

Result<ArenaLayout> lay_out_arena(std::span<const BufferRecord> buffers, int64_t tokens,
                                  int64_t outputs) {
  ArenaLayout arena;
  arena.offsets.reserve(buffers.size());
  for (const BufferRecord& buffer : buffers) {
    arena.offsets.push_back(arena.total_bytes);
    const auto by_token = checked_mul(buffer.bytes_per_token, static_cast<uint64_t>(tokens));
    const auto by_output = checked_mul(buffer.bytes_per_output, static_cast<uint64_t>(outputs));
    if (!by_token || !by_output) return too_much("activations");
    const auto rows = checked_add(*by_token, *by_output);
    const auto size = rows ? checked_add(*rows, buffer.fixed_bytes) : std::nullopt;
    const auto padded = size ? checked_align(*size, kArenaAlignment) : std::nullopt;
    const auto total = padded ? checked_add(arena.total_bytes, *padded) : std::nullopt;
    if (!total) return too_much("activations");
    arena.total_bytes = *total;
  }
  return arena;
}

uint64_t value_row_bytes(const ValueRecord& value) {
  const int64_t bytes = ktx::value_row_bytes(static_cast<ValueType>(value.type), value.width);
  return static_cast<uint64_t>(bytes) * value.rows_per_row;
}

KvType kv_type_for(const KvSlotRecord& slot, KvType asked) {
  const bool fits = slot.key_dim % 32 == 0 && slot.value_dim % 32 == 0;
  return asked == KvType::Q8_0 && !fits ? KvType::F16 : asked;
}

uint64_t kv_head_bytes(int64_t dim, KvType type) {
  return static_cast<uint64_t>(*row_bytes(kKvTypes[static_cast<int>(type)].dtype, dim));
}

uint64_t kv_token_bytes(const KvSlotRecord& slot, KvType type) {
  const KvType own = kv_type_for(slot, type);
  return static_cast<uint64_t>(slot.kv_heads) *
         (kv_head_bytes(slot.key_dim, own) + kv_head_bytes(slot.value_dim, own));
}

uint64_t kv_block_bytes(const KvSlotRecord& slot, KvType type) {
  return kv_token_bytes(slot, type) * kKvBlockTokens;
}

Error kv_budget_below_a_block(uint64_t budget, uint64_t block_bytes, int64_t ctx) {
  const auto blocks = static_cast<uint64_t>((ctx + kKvBlockTokens - 1) / kKvBlockTokens);
  const uint64_t whole = checked_mul(blocks, block_bytes).value_or(UINT64_MAX);
  return Error{fmt::format(
      "the KV budget of {} is less than a block of {} tokens takes ({}); write --kv-budget {}M for "
      "a context of {} tokens",
      human_bytes(budget), kKvBlockTokens, human_bytes(block_bytes), (whole >> 20) + 1, ctx)};
}

Result<MemoryEstimate> estimate_memory(std::span<const SegmentRecord> segments,
                                       std::span<const BufferRecord> buffers,
                                       std::span<const KvSlotRecord> kv_slots,
                                       const RunShape& shape) {
  if (shape.ctx < 1 || shape.max_batch < 1 || shape.step_tokens < 1 || shape.step_outputs < 1) {
    return Error{
        fmt::format("a context of {} tokens, {} sequences and steps of {} tokens and {} "
                    "logits rows cannot be run",
                    shape.ctx, shape.max_batch, shape.step_tokens, shape.step_outputs)};
  }
  MemoryEstimate estimate;
  for (const SegmentRecord& segment : segments) {
    const bool weights = segment.kind == static_cast<uint32_t>(SegmentKind::Weights);
    uint64_t& sum = weights ? estimate.weight_bytes : estimate.carried_bytes;
    const auto next = checked_add(sum, segment.size);
    if (!next) return too_much("weights");
    sum = *next;
  }
  const ArenaLayout arena = KTX_TRY(lay_out_arena(buffers, shape.step_tokens, shape.step_outputs));
  estimate.arena_bytes = arena.total_bytes;

  for (const KvSlotRecord& slot : kv_slots) {
    estimate.kv_token_bytes += kv_token_bytes(slot, shape.kv_type);
  }
  const uint64_t blocks = (static_cast<uint64_t>(shape.ctx) + kKvBlockTokens - 1) / kKvBlockTokens;
  const auto all_blocks = checked_mul(blocks, static_cast<uint64_t>(shape.max_batch));
  const auto block_bytes = checked_mul(estimate.kv_token_bytes, kKvBlockTokens);
  const auto kv = all_blocks && block_bytes ? checked_mul(*all_blocks, *block_bytes) : std::nullopt;
  if (!kv) return too_much("keys and values");
  estimate.kv_blocks = *all_blocks;
  estimate.kv_bytes = *kv;

  const auto working = checked_add(estimate.arena_bytes, estimate.kv_bytes);
  const auto total = working ? checked_add(*working, estimate.weight_bytes) : std::nullopt;
  if (!total) return too_much("weights, activations, keys and values");
  estimate.total_bytes = *total;
  return estimate;
}

}  // namespace ktx::plan

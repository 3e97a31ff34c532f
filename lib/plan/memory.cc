#include "lib/plan/memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

#include "lib/formats/dtype.h"
#include "lib/support/byte_reader.h"
#include "lib/support/strings.h"

namespace ktx::plan {

using program::kBlockKinds;
using program::kPassingKinds;
using program::SequenceKind;

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

Result<ArenaLayout> lay_out_arena(std::span<const program::Buffer> buffers, int64_t tokens,
                                  int64_t outputs) {
  ArenaLayout arena;
  arena.offsets.reserve(buffers.size());
  for (const program::Buffer& buffer : buffers) {
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

KvType kv_type_for(const program::KvSlot& slot, KvType asked) {
  const bool fits = slot.key_dim % 32 == 0 && slot.value_dim % 32 == 0;
  return asked == KvType::Q8_0 && !fits ? KvType::F16 : asked;
}

uint64_t kv_head_bytes(int64_t dim, KvType type) {
  return static_cast<uint64_t>(*row_bytes(kKvTypes[static_cast<int>(type)].dtype, dim));
}

uint64_t kv_token_bytes(const program::KvSlot& slot, KvType type) {
  const KvType own = kv_type_for(slot, type);
  return static_cast<uint64_t>(slot.kv_heads) *
         (kv_head_bytes(slot.key_dim, own) + kv_head_bytes(slot.value_dim, own));
}

uint64_t kv_block_bytes(const program::KvSlot& slot, KvType type) {
  return kv_token_bytes(slot, type) * kKvBlockTokens;
}

KvBlocks KvBlocks::passing() const {
  KvBlocks blocks;
  for (const SequenceKind kind : kPassingKinds) blocks[kind] = (*this)[kind];
  return blocks;
}

std::optional<uint64_t> KvTokenBytes::times(const KvBlocks& blocks) const {
  std::optional<uint64_t> sum = 0;
  for (const SequenceKind kind : kBlockKinds) {
    const auto tokens = checked_mul(blocks[kind], kKvBlockTokens);
    const auto bytes = tokens ? checked_mul((*this)[kind], *tokens) : std::nullopt;
    sum = sum && bytes ? checked_add(*sum, *bytes) : std::nullopt;
  }
  return sum;
}

KvTokenBytes kv_token_bytes(std::span<const program::KvSlot> slots, KvType type) {
  KvTokenBytes sum;
  for (const program::KvSlot& slot : slots) {
    sum[slot.kind()] += kv_token_bytes(slot, type);
  }
  return sum;
}

KvWidths kv_widths(std::span<const program::KvSlot> slots) {
  KvWidths widths;
  for (const program::KvSlot& slot : slots) {
    int64_t& widest = widths[slot.kind()];
    widest = std::max<int64_t>(widest, slot.window);
  }
  return widths;
}

namespace {

uint64_t blocks_of(int64_t tokens) {
  return (static_cast<uint64_t>(tokens) + kKvBlockTokens - 1) / kKvBlockTokens;
}

// What sequences can hold at once. A window begins anywhere in a block, and so does a chunk.
uint64_t most_passing_blocks(int64_t window, const RunShape& shape) {
  const uint64_t running = blocks_of(window + kKvWindowSlack) + 2;
  const uint64_t ended = blocks_of(window) + 1;
  return static_cast<uint64_t>(shape.max_batch) * (running + ended) + blocks_of(shape.step_tokens);
}

}  // namespace

std::optional<KvBlocks> kv_blocks(const KvWidths& widths, const RunShape& shape) {
  const auto sequences = static_cast<uint64_t>(shape.max_batch);
  const auto whole = checked_mul(blocks_of(shape.ctx), sequences);
  if (!whole) return std::nullopt;
  KvBlocks blocks{{*whole}};
  for (const SequenceKind kind : kPassingKinds) {
    if (widths[kind] > 0) blocks[kind] = std::min(*whole, most_passing_blocks(widths[kind], shape));
  }
  if (shape.state_bytes > 0) blocks.states = sequences * (shape.running_states() + kSnapshots);
  return blocks;
}

namespace {

// What a budget leaves for blocks, once running sequences have their states. Snapshots get their
// share of the rest, as with all the memory that they could use.
Result<uint64_t> take_states(const RunShape& shape, uint64_t budget, uint64_t block_bytes,
                             KvBlocks& wanted) {
  if (shape.state_bytes == 0) return budget;
  const auto sequences = static_cast<uint64_t>(shape.max_batch);
  const uint64_t running = sequences * shape.running_states() * shape.state_bytes;
  if (running >= budget) {
    return Error{fmt::format(
        "the KV budget of {} is less than the states of {} sequences take ({}); write --kv-budget "
        "{}M, or a lower --max-batch",
        human_bytes(budget), sequences, human_bytes(running),
        ((running + wanted.whole * block_bytes) >> 20) + 1)};
  }
  const uint64_t rest = budget - running;
  const double snapshots = static_cast<double>(sequences * kSnapshots * shape.state_bytes);
  const double blocks = static_cast<double>(wanted.whole * block_bytes);
  const auto share =
      static_cast<uint64_t>(static_cast<double>(rest) * snapshots / (snapshots + blocks));
  wanted.states = sequences * shape.running_states() +
                  std::min(sequences * kSnapshots, share / shape.state_bytes);
  return budget - wanted.states * shape.state_bytes;
}

}  // namespace

Result<KvBlocks> kv_blocks(const KvWidths& widths, const RunShape& shape, const KvTokenBytes& token,
                           uint64_t budget) {
  const auto wanted = kv_blocks(widths, shape);
  const auto kv = wanted ? token.times(*wanted) : std::nullopt;
  const auto states = wanted ? checked_mul(wanted->states, shape.state_bytes) : std::nullopt;
  const auto bytes = kv && states ? checked_add(*kv, *states) : std::nullopt;
  if (!bytes) return too_much("keys, values and states");
  if (budget == 0 || *bytes <= budget) return *wanted;
  const uint64_t block = token.whole * kKvBlockTokens;
  KvBlocks blocks = *wanted;
  const uint64_t left = KTX_TRY(take_states(shape, budget, block, blocks));
  // The windows come first: without them a context of any length is of no use.
  const uint64_t windows = *token.times(wanted->passing());
  if (windows > left) {
    blocks.whole = 0;
  } else if (block > 0) {
    blocks.whole = std::min(wanted->whole, (left - windows) / block);
  }
  KvBlocks one{{1}};
  uint64_t most = 0;
  for (const SequenceKind kind : kPassingKinds) {
    one[kind] = widths[kind] > 0 ? 1 : 0;
    most = std::max(most, (*wanted)[kind]);
  }
  const auto least = token.times(one);
  if (blocks.whole < most) {
    blocks.whole = least ? left / *least : 0;
    for (const SequenceKind kind : kPassingKinds) {
      blocks[kind] = std::min((*wanted)[kind], blocks.whole);
    }
  }
  if (blocks.whole > 0) return blocks;
  const auto for_ctx = kv_blocks(widths, {.ctx = shape.ctx, .step_tokens = shape.step_tokens});
  const auto enough = for_ctx ? token.times(*for_ctx) : std::nullopt;
  return Error{fmt::format(
      "the KV budget of {} is less than a block of {} tokens takes ({}); write --kv-budget {}M for "
      "a context of {} tokens",
      human_bytes(budget), kKvBlockTokens, human_bytes(least.value_or(UINT64_MAX)),
      (enough.value_or(UINT64_MAX) >> 20) + 1, shape.ctx)};
}

Result<MemoryEstimate> estimate_memory(uint64_t weight_bytes,
                                       std::span<const program::Buffer> buffers,
                                       std::span<const program::KvSlot> kv_slots,
                                       const KvWidths& widths, const RunShape& shape) {
  if (shape.ctx < 1 || shape.max_batch < 1 || shape.step_tokens < 1 || shape.step_outputs < 1) {
    return Error{
        fmt::format("a context of {} tokens, {} sequences and steps of {} tokens and {} "
                    "logits rows cannot be run",
                    shape.ctx, shape.max_batch, shape.step_tokens, shape.step_outputs)};
  }
  MemoryEstimate estimate;
  estimate.weight_bytes = weight_bytes;
  const ArenaLayout arena = KTX_TRY(lay_out_arena(buffers, shape.step_tokens, shape.step_outputs));
  estimate.arena_bytes = arena.total_bytes;

  estimate.kv_token = kv_token_bytes(kv_slots, shape.kv_type);
  estimate.kv_blocks = KTX_TRY(kv_blocks(widths, shape, estimate.kv_token, 0));
  estimate.kv_bytes = *estimate.kv_token.times(estimate.kv_blocks);

  estimate.state_bytes = estimate.kv_blocks.states * shape.state_bytes;
  const auto kept = checked_add(estimate.kv_bytes, estimate.state_bytes);
  const auto working = kept ? checked_add(estimate.arena_bytes, *kept) : std::nullopt;
  const auto total = working ? checked_add(*working, estimate.weight_bytes) : std::nullopt;
  if (!total) return too_much("weights, activations, keys and values");
  estimate.total_bytes = *total;
  return estimate;
}

}  // namespace ktx::plan

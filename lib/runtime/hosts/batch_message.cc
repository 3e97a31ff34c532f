#include "lib/runtime/hosts/batch_message.h"

#include <algorithm>
#include <span>

namespace ktx::runtime {
namespace {

constexpr int32_t kGone = -1;  // a block that windows have left behind
const Error kDamaged{"the first host has sent a batch that does not fit the plan"};

// As many blocks as hold positions up to the last one of each sequence.
std::vector<int64_t> blocks_of_sequences(const Batch& batch) {
  std::vector<int64_t> blocks;
  for (int64_t t = 0; t < batch.tokens; ++t) {
    const auto sequence = static_cast<size_t>(batch.sequence[t]);
    if (blocks.size() <= sequence) blocks.resize(sequence + 1);
    blocks[sequence] = std::max(blocks[sequence], blocks_for(int64_t{batch.text_end[t]} + 1));
  }
  return blocks;
}

std::vector<int32_t> numbers(const KvCache& cache, std::byte* const* table, int64_t blocks) {
  std::vector<int32_t> all;
  for (int64_t b = 0; b < blocks; ++b) {
    all.push_back(table[b] ? static_cast<int32_t>(cache.block_number(table[b])) : kGone);
  }
  return all;
}

template <class T>
void put_first(const std::vector<T>& list, int64_t count, MessageWriter& out) {
  out.put_list(std::span<const T>(list).first(static_cast<size_t>(count)));
}

template <class T>
bool all_in(const std::vector<T>& list, int64_t low, int64_t high) {
  return std::ranges::all_of(list, [&](T value) { return low <= value && value < high; });
}

struct SentState {
  int64_t tokens = 0;
  int32_t slot = kNoState;
  int32_t snapshot = 0;
};

}  // namespace

void put_batch(const Batch& batch, const KvPools& kv, MessageWriter& out) {
  out.put(batch.tokens).put(batch.outputs);
  put_first(batch.ids, batch.tokens, out);
  put_first(batch.position, batch.tokens, out);
  put_first(batch.sequence, batch.tokens, out);
  put_first(batch.text_end, batch.tokens, out);
  put_first(batch.output_rows, batch.outputs, out);
  const std::vector<int64_t> blocks = blocks_of_sequences(batch);
  out.put(static_cast<uint64_t>(blocks.size()));
  for (size_t s = 0; s < blocks.size(); ++s) {
    const bool used = blocks[s] > 0;
    for (const SequenceKind kind : kv.kinds()) {
      out.put_list(std::span<const int32_t>(
          used ? numbers(kv.of(kind), batch.tables[kind][s], blocks[s]) : std::vector<int32_t>()));
    }
    if (!kv.has_states()) continue;
    std::vector<SentState> outs;
    for (const StateOut& state : batch.states[s].outs) {
      outs.push_back({state.tokens, state.slot, state.snapshot ? 1 : 0});
    }
    out.put(used ? batch.states[s].in_slot : kNoState);
    out.put_list(std::span<const SentState>(used ? outs : std::vector<SentState>()));
  }
}

Status FollowedBatch::read(MessageReader& in, const plan::RunShape& shape, int64_t vocab_size,
                           KvPools& kv) {
  batch_.tokens = in.get<int64_t>();
  batch_.outputs = in.get<int64_t>();
  const auto most = static_cast<uint64_t>(shape.step_tokens);
  batch_.ids = in.get_list<int32_t>(most);
  batch_.position = in.get_list<int32_t>(most);
  batch_.sequence = in.get_list<int32_t>(most);
  batch_.text_end = in.get_list<int32_t>(most);
  batch_.output_rows = in.get_list<int32_t>(static_cast<uint64_t>(shape.step_outputs));
  batch_.best.assign(batch_.output_rows.size(), -1);
  batch_.filter.assign(batch_.output_rows.size(), nullptr);
  for (const auto* list : {&batch_.ids, &batch_.position, &batch_.sequence, &batch_.text_end}) {
    if (!in.ok() || std::ssize(*list) != batch_.tokens) return kDamaged;
  }
  if (batch_.tokens < 1 || std::ssize(batch_.output_rows) != batch_.outputs ||
      !all_in(batch_.ids, 0, vocab_size) || !all_in(batch_.text_end, 0, shape.ctx) ||
      !all_in(batch_.position, 0, shape.ctx) || !all_in(batch_.sequence, 0, shape.max_batch) ||
      !all_in(batch_.output_rows, 0, batch_.tokens)) {
    return kDamaged;
  }
  for (int64_t t = 0; t < batch_.tokens; ++t) {
    if (batch_.position[t] > batch_.text_end[t]) return kDamaged;
  }
  return read_tables(in, shape, kv);
}

Status FollowedBatch::read_tables(MessageReader& in, const plan::RunShape& shape, KvPools& kv) {
  const auto sequences = in.get<uint64_t>();
  if (!in.ok() || sequences > static_cast<uint64_t>(shape.max_batch)) return kDamaged;
  batch_.states.assign(sequences, {});
  for (const SequenceKind kind : kBlockKinds) {
    tables_[kind].assign(sequences, {});
    batch_.tables[kind].assign(sequences, nullptr);
  }
  const auto most = static_cast<uint64_t>(blocks_for(shape.ctx));
  for (size_t s = 0; s < sequences; ++s) {
    for (const SequenceKind kind : kv.kinds()) {
      const KvCache& cache = kv.of(kind);
      const std::vector<int32_t> blocks = in.get_list<int32_t>(most);
      const int32_t least = kind == SequenceKind::Whole ? 0 : kGone;
      if (!in.ok() || !all_in(blocks, least, cache.total_blocks())) return kDamaged;
      for (const int32_t block : blocks) {
        tables_[kind][s].push_back(block == kGone ? nullptr : cache.block(block));
      }
      batch_.tables[kind][s] = tables_[kind][s].data();
    }
    if (kv.has_states()) KTX_TRY(read_states(in, kv, batch_.states[s]));
  }
  if (!in.at_end()) return kDamaged;
  const std::vector<int64_t> needed = blocks_of_sequences(batch_);
  if (needed.size() > sequences) return kDamaged;
  for (size_t s = 0; s < needed.size(); ++s) {
    for (const SequenceKind kind : kv.kinds()) {
      if (std::ssize(tables_[kind][s]) < needed[s]) return kDamaged;
    }
  }
  return {};
}

Status FollowedBatch::read_states(MessageReader& in, KvPools& kv, SequenceState& state) {
  StatePool& pool = kv.states();
  state.in_slot = in.get<int32_t>();
  if (!in.ok() || state.in_slot < kNoState || state.in_slot >= pool.slots()) return kDamaged;
  if (state.in_slot != kNoState) {
    if (!pool.give_memory(state.in_slot)) return Error{"there is no memory for states"};
    state.in = pool.data(state.in_slot);
  }
  for (const SentState& sent : in.get_list<SentState>(static_cast<uint64_t>(pool.slots()))) {
    if (sent.slot < 0 || sent.slot >= pool.slots() || sent.tokens < 0) return kDamaged;
    if (!pool.give_memory(sent.slot)) return Error{"there is no memory for states"};
    state.outs.push_back({sent.tokens, sent.slot, pool.data(sent.slot), sent.snapshot != 0});
  }
  return in.ok() ? Status{} : Status{kDamaged};
}

}  // namespace ktx::runtime

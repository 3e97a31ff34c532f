#include "lib/runtime/gpu/gpu_batch.h"

#include <algorithm>
#include <cstring>

namespace ktx::runtime {
namespace {

int64_t padded(int64_t bytes) {
  return (bytes + 63) / 64 * 64;
}

// `count` numbers, then -1 up to `rows`.
void put(std::byte* out, const int32_t* numbers, int64_t count, int64_t rows, int32_t filler) {
  auto* to = reinterpret_cast<int32_t*>(out);
  std::copy(numbers, numbers + count, to);
  std::fill(to + count, to + std::max(rows, count), filler);
}

}  // namespace

GpuBatchLayout::GpuBatchLayout(int64_t tokens, int64_t outputs, int64_t sequences, int64_t ctx,
                               std::span<const SequenceKind> kinds, GpuBatchStates states)
    : states_(states) {
  for (const SequenceKind kind : kinds) {
    table_at_[kind] = table_stride_;
    table_stride_ += blocks_for(ctx);
  }
  const int64_t row = padded(tokens * 4);
  position_ = row;
  sequence_ = 2 * row;
  text_end_ = 3 * row;
  output_rows_ = 4 * row;
  texts_ = output_rows_ + padded(outputs * 4);
  segments_ = texts_ + (states.slots > 0 ? padded((states.texts + 1) * 4) : 0);
  // Each writes a slot of its own.
  tables_ = segments_ + padded(states.slots * static_cast<int64_t>(sizeof(kernels::StateSegment)));
  bytes_ = tables_ + padded(sequences * table_stride_ * 4);
}

GpuBatch GpuBatchLayout::at(const std::byte* base) const {
  const auto field = [&](int64_t offset) {
    return reinterpret_cast<const int32_t*>(base + offset);
  };
  GpuBatch batch{field(0),         field(position_),    field(sequence_),
                 field(text_end_), field(output_rows_), {},
                 table_stride_};
  for (const SequenceKind kind : kBlockKinds) batch.tables[kind] = field(tables_) + table_at_[kind];
  if (states_.slots == 0) return batch;
  batch.texts = field(texts_);
  batch.segments = reinterpret_cast<const kernels::StateSegment*>(base + segments_);
  batch.most_texts = states_.texts;
  return batch;
}

void GpuBatchLayout::fill_states(std::byte* out, const Batch& batch) const {
  auto* const texts = reinterpret_cast<int32_t*>(out + texts_);
  auto* const segments = reinterpret_cast<kernels::StateSegment*>(out + segments_);
  int64_t text = 0;
  int32_t count = 0;
  for (int64_t row = 0; row < batch.tokens; ++row) {
    if (row > 0 && batch.sequence[row] == batch.sequence[row - 1]) continue;
    KTX_ASSERT(text < states_.texts);
    texts[text++] = count;
    const SequenceState& state = batch.states[batch.sequence[row]];
    int32_t in = state.in_slot;
    int64_t done = 0;
    for (const StateOut& to : state.outs) {
      KTX_ASSERT(count < states_.slots && to.tokens > done);
      segments[count++] = {static_cast<int32_t>(row + done), static_cast<int32_t>(to.tokens - done),
                           in, to.slot};
      in = to.slot;
      done = to.tokens;
    }
  }
  std::fill(texts + text, texts + states_.texts + 1, count);
}

int64_t GpuBatchLayout::fill(std::byte* out, const Batch& batch, int64_t sequences,
                             const GpuShape& shape, const KvPools& kv) const {
  put(out, batch.ids.data(), batch.tokens, shape.tokens, 0);
  put(out + position_, batch.position.data(), batch.tokens, shape.tokens, -1);
  put(out + sequence_, batch.sequence.data(), batch.tokens, shape.tokens, 0);
  put(out + text_end_, batch.text_end.data(), batch.tokens, shape.tokens, -1);
  put(out + output_rows_, batch.output_rows.data(), batch.outputs, shape.outputs, -1);
  if (states_.slots > 0) fill_states(out, batch);
  // Each table gets as many blocks as its last token needs.
  auto* tables = reinterpret_cast<int32_t*>(out + tables_);
  for (int64_t t = 0; t < batch.tokens; ++t) {
    const bool last = t + 1 == batch.tokens || batch.sequence[t + 1] != batch.sequence[t];
    if (!last) continue;
    const int32_t s = batch.sequence[t];
    const int64_t blocks = blocks_for(int64_t{batch.position[t]} + 1);
    int32_t* const table = tables + s * table_stride_;
    for (const SequenceKind kind : kv.kinds()) {
      for (int64_t b = 0; b < blocks; ++b) {
        // Nothing reads one that has gone.
        const std::byte* const block = batch.tables[kind][s][b];
        table[table_at_[kind] + b] =
            block ? static_cast<int32_t>(kv.of(kind).block_number(block)) : 0;
      }
    }
  }
  return tables_ + sequences * table_stride_ * 4;
}

}  // namespace ktx::runtime

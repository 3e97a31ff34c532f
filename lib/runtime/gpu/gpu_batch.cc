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
                               bool windows)
    : table_stride_(blocks_for(ctx) * (windows ? 2 : 1)),
      window_table_(windows ? blocks_for(ctx) : 0) {
  const int64_t row = padded(tokens * 4);
  position_ = row;
  sequence_ = 2 * row;
  output_rows_ = 3 * row;
  tables_ = output_rows_ + padded(outputs * 4);
  bytes_ = tables_ + padded(sequences * table_stride_ * 4);
}

GpuBatch GpuBatchLayout::at(const std::byte* base) const {
  const auto field = [&](int64_t offset) {
    return reinterpret_cast<const int32_t*>(base + offset);
  };
  return {field(0),         field(position_),
          field(sequence_), field(output_rows_),
          field(tables_),   field(tables_) + window_table_,
          table_stride_};
}

int64_t GpuBatchLayout::fill(std::byte* out, const Batch& batch, int64_t sequences,
                             const GpuShape& shape, const KvPools& kv) const {
  put(out, batch.ids.data(), batch.tokens, shape.tokens, 0);
  put(out + position_, batch.position.data(), batch.tokens, shape.tokens, -1);
  put(out + sequence_, batch.sequence.data(), batch.tokens, shape.tokens, 0);
  put(out + output_rows_, batch.output_rows.data(), batch.outputs, shape.outputs, -1);
  // Of each table as many blocks as its last token needs.
  const auto number = [](const KvCache& pool, const std::byte* block) {
    return static_cast<int32_t>(pool.block_number(block));
  };
  auto* tables = reinterpret_cast<int32_t*>(out + tables_);
  for (int64_t t = 0; t < batch.tokens; ++t) {
    const bool last = t + 1 == batch.tokens || batch.sequence[t + 1] != batch.sequence[t];
    if (!last) continue;
    const int32_t s = batch.sequence[t];
    const int64_t blocks = blocks_for(int64_t{batch.position[t]} + 1);
    int32_t* const table = tables + s * table_stride_;
    for (int64_t b = 0; b < blocks; ++b) {
      table[b] = number(kv.of(KvPool::Whole), batch.tables[s][b]);
      if (!kv.has_windows()) continue;
      // Nothing reads what is behind the window.
      std::byte* const block = batch.window_tables[s][b];
      table[window_table_ + b] = block ? number(kv.of(KvPool::Window), block) : 0;
    }
  }
  return tables_ + sequences * table_stride_ * 4;
}

}  // namespace ktx::runtime

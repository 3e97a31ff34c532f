#include "lib/runtime/gpu/gpu_batch.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "lib/plan/given_rows.h"
#include "lib/target/host_device.h"

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

GpuBatchImages GpuBatchImages::of(const plan::PlanView& plan) {
  const auto has = [&](StepOp op) {
    return std::ranges::any_of(plan.program->steps, [&](const program::Step& step) {
      return step.op == op && !target::is_cpu(step.device);
    });
  };
  GpuBatchImages images;
  images.some_rows = has(StepOp::GivenRows);
  images.given_width = plan::given_floats_on_gpus(plan);
  images.axes = has(StepOp::RopeGrid) || has(StepOp::EmbedGrid);
  images.grid = has(StepOp::EmbedGrid) || has(StepOp::PoolRows);
  return images;
}

GpuBatchLayout::GpuBatchLayout(int64_t tokens, int64_t outputs, int64_t sequences, int64_t ctx,
                               std::span<const SequenceKind> kinds, GpuBatchStates states,
                               GpuBatchImages images)
    : states_(states), images_(images) {
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
  given_row_ =
      segments_ + padded(states.slots * static_cast<int64_t>(sizeof(kernels::StateSegment)));
  axes_ = given_row_ + (images.some_rows ? row : 0);
  axis_bytes_ = images.axes ? row : 0;
  grid_ = axes_ + kTokenAxes * axis_bytes_;
  tables_ = grid_ + (images.grid ? padded(2 * 4) : 0);
  given_ = tables_ + padded(sequences * table_stride_ * 4);
  bytes_ = given_ + padded(tokens * images.given_width * 4);
}

GpuBatch GpuBatchLayout::at(const std::byte* base) const {
  const auto field = [&](int64_t offset) {
    return reinterpret_cast<const int32_t*>(base + offset);
  };
  GpuBatch batch{field(0),         field(position_),    field(sequence_),
                 field(text_end_), field(output_rows_), {},
                 table_stride_};
  for (const SequenceKind kind : kBlockKinds) batch.tables[kind] = field(tables_) + table_at_[kind];
  if (images_.some_rows) batch.given_row = field(given_row_);
  for (int axis = 0; images_.axes && axis < kTokenAxes; ++axis) {
    batch.axes[axis] = field(axes_ + axis * axis_bytes_);
  }
  if (images_.grid) batch.grid = field(grid_);
  if (images_.given_width > 0) batch.given = reinterpret_cast<const float*>(base + given_);
  batch.given_width = images_.given_width;
  if (states_.slots == 0) return batch;
  batch.texts = field(texts_);
  batch.segments = reinterpret_cast<const kernels::StateSegment*>(base + segments_);
  batch.most_texts = states_.texts;
  return batch;
}

void GpuBatchLayout::fill_images(std::byte* out, const Batch& batch, const GpuShape& shape) const {
  if (images_.some_rows) {
    put(out + given_row_, batch.given_row.data(), batch.tokens, shape.tokens, -1);
  }
  for (int axis = 0; images_.axes && axis < kTokenAxes; ++axis) {
    put(out + axes_ + axis * axis_bytes_, batch.axes[axis].data(), batch.tokens, shape.tokens, 0);
  }
  if (!images_.grid) return;
  const int64_t columns = std::max<int64_t>(batch.columns, 1);
  const std::array<int32_t, 2> grid = {static_cast<int32_t>(columns),
                                       static_cast<int32_t>(batch.tokens / columns)};
  std::memcpy(out + grid_, grid.data(), sizeof(grid));
}

// Returns the bytes of the block up to the last row that has come; 0: none has.
int64_t GpuBatchLayout::fill_given(std::byte* out, const Batch& batch) const {
  const int64_t row_bytes = images_.given_width * 4;
  const auto* const rows = reinterpret_cast<const std::byte*>(batch.hidden.data());
  int64_t end = 0;
  for (int64_t t = 0; row_bytes > 0 && t < batch.tokens; ++t) {
    const int64_t row = images_.some_rows ? batch.given_row[t] : t;
    if (row < 0) continue;
    std::memcpy(out + given_ + row * row_bytes, rows + row * row_bytes,
                static_cast<size_t>(row_bytes));
    end = std::max(end, given_ + (row + 1) * row_bytes);
  }
  return end;
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
  fill_images(out, batch, shape);
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
  return std::max(tables_ + sequences * table_stride_ * 4, fill_given(out, batch));
}

}  // namespace ktx::runtime

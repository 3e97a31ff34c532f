// The inputs of a step for a GPU, as one block of memory that is uploaded by one copy:
//
//   ids[T] | position[T] | sequence[T] | text_end[T] | output_rows[R] | texts, segments of states |
//   sequences x (a table of each kind of blocks)
//
// Filled in pinned memory and copied to the same addresses on each GPU. Offsets are fixed by
// the largest step, so that captured graphs find their inputs.
#pragma once

#include <cstddef>
#include <cstdint>

#include "lib/plan/memory.h"
#include "lib/runtime/engine/batch.h"
#include "lib/runtime/gpu/gpu.h"

namespace ktx::runtime {

// For models with states of a fixed size: the most texts of a pass, padding included, and slots.
struct GpuBatchStates {
  int64_t texts = 0;
  int64_t slots = 0;
};

class GpuBatchLayout {
 public:
  GpuBatchLayout() = default;
  // `kinds`: of blocks (KvPools::kinds).
  GpuBatchLayout(int64_t tokens, int64_t outputs, int64_t sequences, int64_t ctx,
                 std::span<const SequenceKind> kinds, GpuBatchStates states = {});

  int64_t bytes() const { return bytes_; }
  // The fields of a block that begins at `base`.
  GpuBatch at(const std::byte* base) const;

  // Writes a batch, padded to the rows of `shape`; returns how many bytes count.
  // block_number gives the number of a block of a table.
  int64_t fill(std::byte* out, const Batch& batch, int64_t sequences, const GpuShape& shape,
               const KvPools& kv) const;

 private:
  void fill_states(std::byte* out, const Batch& batch) const;

  GpuBatchStates states_;
  int64_t texts_ = 0, segments_ = 0;
  int64_t table_stride_ = 0;       // of all tables of a sequence
  ByBlockKind<int64_t> table_at_;  // where each begins
  int64_t position_ = 0, sequence_ = 0, text_end_ = 0, output_rows_ = 0, tables_ = 0, bytes_ = 0;
};

}  // namespace ktx::runtime

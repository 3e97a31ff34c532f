// The inputs of a step for a GPU, as one block of memory that is uploaded by one copy:
//
//   ids[T] | position[T] | sequence[T] | text_end[T] | output_rows[R] | texts, segments of states |
//   given_row[T], axes[T] each, grid[2] of images | sequences x (a table of each kind of blocks) |
//   given[T, width], rows of images
//
// Filled in pinned memory and copied to the same addresses on each GPU. Offsets are fixed by
// the largest step, so that captured graphs find their inputs. Rows of images stand last: a pass
// without any uploads none.
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

// For plans that take images, and for towers: what comes with their passes.
struct GpuBatchImages {
  int64_t given_width = 0;  // floats of a row
  bool some_rows = false;   // come with tokens of images alone, else with each
  bool axes = false;
  bool grid = false;
  static GpuBatchImages of(const plan::PlanView& plan);
};

class GpuBatchLayout {
 public:
  GpuBatchLayout() = default;
  // `kinds`: of blocks (KvPools::kinds).
  GpuBatchLayout(int64_t tokens, int64_t outputs, int64_t sequences, int64_t ctx,
                 std::span<const SequenceKind> kinds, GpuBatchStates states = {},
                 GpuBatchImages images = {});

  int64_t bytes() const { return bytes_; }
  // The fields of a block that begins at `base`.
  GpuBatch at(const std::byte* base) const;

  // Writes a batch, padded to the rows of `shape`; returns how many bytes count.
  // block_number gives the number of a block of a table.
  int64_t fill(std::byte* out, const Batch& batch, int64_t sequences, const GpuShape& shape,
               const KvPools& kv) const;

 private:
  void fill_states(std::byte* out, const Batch& batch) const;
  void fill_images(std::byte* out, const Batch& batch, const GpuShape& shape) const;
  int64_t fill_given(std::byte* out, const Batch& batch) const;

  GpuBatchStates states_;
  GpuBatchImages images_;
  int64_t texts_ = 0, segments_ = 0;
  int64_t table_stride_ = 0;       // of all tables of a sequence
  ByBlockKind<int64_t> table_at_;  // where each begins
  int64_t position_ = 0, sequence_ = 0, text_end_ = 0, output_rows_ = 0, tables_ = 0, bytes_ = 0;
  int64_t given_row_ = 0, axes_ = 0, axis_bytes_ = 0, grid_ = 0, given_ = 0;
};

}  // namespace ktx::runtime

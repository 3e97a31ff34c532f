// Rows of activations in F16 with a power of two per row taken out.
#pragma once

#include "kernels/cuda/cuda_launch.cuh"
#include "kernels/cuda/cuda_matmul.h"

namespace ktx::kernels {

// Fragments: of every 32 columns, 8t + 4s + 2h + e stands at 16s + 8h + 2t + e, where the
// products of marlin fragments (kernels/matmul/marlin_layout.h) with shared memory expect it.
enum class HalfOrder { Columns, Fragments };

// Rows get half_cols halves, zeros from `cols` on.
Status launch_half_rows_padded(const CudaHalfRowsArgs& args, int64_t half_cols, HalfOrder order,
                               cudaStream_t stream);

inline int64_t half_rows_cols(int64_t cols) { return ceil_div<int64_t>(cols, 256) * 256; }
inline int64_t workspace_aligned(int64_t bytes) { return ceil_div<int64_t>(bytes, 256) * 256; }
// Memory of so many rows in F16 and their scales.
inline int64_t half_rows_bytes(int64_t rows, int64_t cols) {
  return workspace_aligned(rows * half_rows_cols(cols) * 2) + workspace_aligned(rows * 4);
}

}  // namespace ktx::kernels

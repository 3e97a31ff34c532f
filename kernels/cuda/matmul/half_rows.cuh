// Rows of activations in F16 with a power of two per row taken out.
#pragma once

#include "kernels/cuda/common/cuda_launch.cuh"
#include "kernels/cuda/matmul/cuda_matmul.h"

namespace ktx::kernels {

// Fragments: of every 32 columns, 8t + 4s + 2h + e stands at 16s + 8h + 2t + e, where the
// products of marlin fragments (kernels/matmul/marlin_layout.h) with shared memory expect it.
//
// Panels: the same order, 64 columns at a time: panel c / 64 has 128 bytes a row, row after
// row (padded_rows of them), in which 16-byte piece i stands at i ^ (row % 8). So rows from a
// multiple of 8 on are one piece of memory in the form that wgmma takes (wgmma.cuh).
enum class HalfOrder { Columns, Fragments, Panels };

// A norm on the way: weight[cols], 16-byte aligned, or null. Its factor is in the scale of a row.
struct RowNorm {
  const float* weight = nullptr;
  float eps = 0;
};

// Rows get half_cols halves, zeros from `cols` on.
Status launch_half_rows_padded(const CudaHalfRowsArgs& args, int64_t half_cols, HalfOrder order,
                               const RowNorm& norm, cudaStream_t stream);

inline int64_t half_rows_cols(int64_t cols) {
  return ceil_div<int64_t>(cols, 256) * 256;
}
inline int64_t workspace_aligned(int64_t bytes) {
  return ceil_div<int64_t>(bytes, 256) * 256;
}
inline int64_t padded_rows(int64_t rows) {
  return ceil_div<int64_t>(rows, 128) * 128;
}
// Memory of so many rows in F16, and with their scales behind them.
inline int64_t half_values_bytes(int64_t rows, int64_t cols) {
  return padded_rows(rows) * half_rows_cols(cols) * 2;
}
inline int64_t half_rows_bytes(int64_t rows, int64_t cols) {
  return half_values_bytes(rows, cols) + workspace_aligned(rows * 4);
}

}  // namespace ktx::kernels

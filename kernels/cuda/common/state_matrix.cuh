// A matrix of states in the registers of a block, for ops whose columns do not depend on each other
// (delta_rule, state_space): a pass reads and writes it once for each segment of a text.
//
// A warp has 8 columns and no need of any other warp: lane l has columns 4 * (l % 2) .. + 3 of rows
// 64 * j + 4 * (l / 2) .. + 3 (j < kGroups). So a load of a warp takes whole sectors of 32 bytes
// and the warps of a block take whole lines. The number of columns is a multiple of 4, and matrices
// begin at multiples of 16 bytes.
#pragma once

#include <cstdint>

#include "kernels/cuda/common/four_floats.cuh"

namespace ktx::kernels {

inline constexpr int kMatrixWarps = 4;  // of a block
inline constexpr int kWarpColumns = 8;
inline constexpr int kBlockColumns = kMatrixWarps * kWarpColumns;
inline constexpr unsigned kAllLanes = 0xFFFFFFFF;

__device__ __forceinline__ float part(const float4& v, int i) {
  return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w;
}
__device__ __forceinline__ float softplus(float x) {
  return x > 20 ? x : log1pf(expf(x));
}

// Where a lane's part of a matrix [rows, columns] is.
struct MatrixLane {
  int rows, columns;
  int row, column;  // the first of both

  __device__ MatrixLane(int all_rows, int all_columns) : rows(all_rows), columns(all_columns) {
    const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
    row = lane / 2 * 4;
    column = (static_cast<int>(blockIdx.x) * kMatrixWarps + warp) * kWarpColumns + lane % 2 * 4;
  }
  __device__ bool warp_has_columns() const {
    return column / kWarpColumns * kWarpColumns < columns;
  }
  __device__ bool has_columns() const { return column < columns; }
  __device__ bool has_rows(int group) const { return 64 * group + row < rows; }
  // Those of a vector of `rows` that are the lane's in a group; zeros behind the last row.
  __device__ float4 rows_of(const float* vector, int group) const {
    return has_rows(group) ? load4(vector + 64 * group + row) : float4{};
  }
  // Those of a vector of `columns` that are the lane's.
  __device__ float4 columns_of(const float* vector) const {
    return has_columns() ? load4(vector + column) : float4{};
  }
};

// rows[j][e]: columns column .. + 3 of row 64 * j + MatrixLane::row + e.
template <int kGroups>
struct MatrixPart {
  float4 rows[kGroups][4];

  // matrix: null: zeros.
  __device__ void load(const MatrixLane& lane, const float* matrix) {
    each(lane, [&](float4& row, int64_t at, bool there) {
      row = there && matrix != nullptr ? load4(matrix + at) : float4{};
    });
  }
  __device__ void store(const MatrixLane& lane, float* matrix) {
    each(lane, [&](const float4& row, int64_t at, bool there) {
      if (there) store4(matrix + at, row);
    });
  }

 private:
  template <class F>
  __device__ __forceinline__ void each(const MatrixLane& lane, F&& f) {
#pragma unroll
    for (int j = 0; j < kGroups; ++j) {
      const bool there = lane.has_columns() && lane.has_rows(j);
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        f(rows[j][e], int64_t{64 * j + lane.row + e} * lane.columns + lane.column, there);
      }
    }
  }
};

}  // namespace ktx::kernels

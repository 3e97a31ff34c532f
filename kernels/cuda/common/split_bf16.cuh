// Products of floats on tensor cores, as three products of BF16 (sm_80): x = high + low to 2^-18 of
// x, and a * b = a.low * b.high + a.high * b.low + a.high * b.high. No float overflows where its
// product does not, and the error of a product is 2^-17 of it.
//
// A plane is a matrix of high or of low parts with rows of kRow elements, a multiple of 64. The
// units of 8 elements in a row are exchanged (split_place), so that the eight rows of an ldmatrix
// lie in different banks, whether it transposes or not.
#pragma once

#include <cstdint>

#include "kernels/cuda/common/matrix_loads.cuh"

namespace ktx::kernels {

// Where element (row, column) of a plane lies; 8 elements from a multiple of 8 on lie together.
template <int kRow>
__device__ __forceinline__ int split_place(int row, int column) {
  return row * kRow + (((column >> 3) ^ (row & 7)) << 3) + (column & 7);
}

struct SplitPair {
  uint32_t high, low;  // of two floats, the first one in the lower half
};
__device__ __forceinline__ uint32_t pack_bf16(float first, float second) {
  uint32_t packed = 0;
#if __CUDA_ARCH__ >= 800
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(second), "f"(first));
#endif
  return packed;
}
__device__ __forceinline__ SplitPair split_pair(float first, float second) {
  const uint32_t high = pack_bf16(first, second);
  return {high, pack_bf16(first - __uint_as_float(high << 16),
                          second - __uint_as_float(high & 0xFFFF0000))};
}

// A 16 x 16: of lane 4 * g + t rows g (0, 2) and g + 8 (1, 3) at columns 2t, 2t + 1 (0, 1) and
// 2t + 8, 2t + 9 (2, 3).
struct SplitA {
  uint32_t high[4], low[4];
};
// Two tiles of sums (16 x 8, side by side) as the A of the next product.
__device__ __forceinline__ SplitA split_sums(const float (&left)[4], const float (&right)[4]) {
  SplitA a;
  const SplitPair parts[4] = {split_pair(left[0], left[1]), split_pair(left[2], left[3]),
                              split_pair(right[0], right[1]), split_pair(right[2], right[3])};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    a.high[i] = parts[i].high;
    a.low[i] = parts[i].low;
  }
  return a;
}

// B 16 x 8: high, high, low, low; of lane 4 * g + t column g at rows 2t, 2t + 1 and 2t + 8, 2t + 9.
using SplitB = uint32_t[4];

// Loads a lane's B fragments from the plane at `high`; the low plane is kPlane elements
// behind the high one. For a plane with B's columns as rows: its rows 8 * tile .. + 7,
// B's rows from 16 * step on.
template <int kRow, int kPlane>
__device__ __forceinline__ void load_b(SplitB& b, const uint16_t* high, int lane, int tile,
                                       int step) {
  const int row = 8 * tile + lane % 8, unit = 2 * step + lane / 8 % 2;
  load_matrices(b, high + lane / 16 * kPlane + split_place<kRow>(row, 8 * unit));
}
// For a plane with B's rows as rows: its rows 16 * step .. + 15, columns 8 * tile .. + 7.
template <int kRow, int kPlane>
__device__ __forceinline__ void load_b_transposed(SplitB& b, const uint16_t* high, int lane,
                                                  int tile, int step) {
  const int row = 16 * step + lane % 16;
  load_transposed(b, high + lane / 16 * kPlane + split_place<kRow>(row, 8 * tile));
}
// A of a plane: its rows 16 * tile .. + 15, columns 16 * step .. + 15.
template <int kRow, int kPlane>
__device__ __forceinline__ void load_a(SplitA& a, const uint16_t* high, int lane, int tile,
                                       int step) {
  const int place = split_place<kRow>(16 * tile + lane % 16, 16 * step + lane / 16 * 8);
  load_matrices(a.high, high + place);
  load_matrices(a.low, high + kPlane + place);
}

__device__ __forceinline__ void mma_bf16(float (&c)[4], const uint32_t (&a)[4], uint32_t b0,
                                         uint32_t b1) {
#if __CUDA_ARCH__ >= 800
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#endif
}

// c[i] += a * b[i] of four tiles: their products by turns, since each waits for the one before.
__device__ __forceinline__ void mma_split(float (*c)[4], const SplitA& a, const SplitB (&b)[4]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) mma_bf16(c[i], a.low, b[i][0], b[i][1]);
#pragma unroll
  for (int i = 0; i < 4; ++i) mma_bf16(c[i], a.high, b[i][2], b[i][3]);
#pragma unroll
  for (int i = 0; i < 4; ++i) mma_bf16(c[i], a.high, b[i][0], b[i][1]);
}
// The same of one tile.
__device__ __forceinline__ void mma_split(float (&c)[4], const SplitA& a, const SplitB& b) {
  mma_bf16(c, a.low, b[0], b[1]);
  mma_bf16(c, a.high, b[2], b[3]);
  mma_bf16(c, a.high, b[0], b[1]);
}

}  // namespace ktx::kernels

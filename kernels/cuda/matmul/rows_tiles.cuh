// Products of float weights with many tokens, in F32: routers of prompts, and prompts of models
// kept in F16 or BF16.
//
// A block of four warps has 64 tokens, 32 rows and a range of columns; the other ranges are with
// the other blocks of its cluster (split-K), whose sums meet at the end in rising order. Steps of
// 32 columns pass through shared memory, a column a line; a thread multiplies four tokens and four
// rows. The groups of four within a line are swapped by its number, so that writers of a row and
// readers of a column meet all banks.
//
// Roofline: F32 arithmetic (67 TFLOP/s on H100), two wavefronts of shared memory for 16 FMAs. L2:
// a row of x is read once for every 32 rows, of the weights once for every 64 tokens.
#pragma once

#include <cuda_bf16.h>

#include "kernels/cuda/common/cluster_sums.cuh"
#include "kernels/cuda/common/cuda_launch.cuh"
#include "kernels/cuda/matmul/rows_gemm.cuh"

namespace ktx::kernels {

__device__ __forceinline__ float to_float(float v) {
  return v;
}
__device__ __forceinline__ float to_float(half v) {
  return __half2float(v);
}
__device__ __forceinline__ float to_float(__nv_bfloat16 v) {
  return __bfloat162float(v);
}

template <class T>
struct alignas(4 * sizeof(T)) FourOf {
  T v[4];
};

constexpr int kTileTokens = 64, kTileRows = 32, kTileStep = 32, kTileThreads = 128;

// Element `i` of column k in a line of shared memory.
__device__ __forceinline__ int in_line(int k, int i) {
  return i ^ k / 4 % 8 * 4;
}

// A thread's share of kTileStep columns of kLines rows: a quad of columns of every 16th row.
template <class T, int kLines>
struct TilePart {
  static constexpr int kQuads = kLines * kTileStep / 4 / kTileThreads;
  const T* row[kQuads];
  float v[kQuads][4];

  // row_of(i): row i of the tile.
  template <class RowOf>
  __device__ __forceinline__ explicit TilePart(RowOf row_of) {
#pragma unroll
    for (int j = 0; j < kQuads; ++j) row[j] = row_of(first_row() + 16 * j) + first_column();
  }
  __device__ static int first_row() {
    return static_cast<int>(threadIdx.x) / 8;
  }
  __device__ static int first_column() {
    return static_cast<int>(threadIdx.x) % 8 * 4;
  }

  __device__ __forceinline__ void load(int64_t k, int64_t cols) {
#pragma unroll
    for (int j = 0; j < kQuads; ++j) {
      FourOf<T> four = {};
      if (k + first_column() < cols) four = *reinterpret_cast<const FourOf<T>*>(row[j] + k);
#pragma unroll
      for (int i = 0; i < 4; ++i) v[j][i] = to_float(four.v[i]);
    }
  }
  __device__ __forceinline__ void store(float (&lines)[kTileStep][kLines]) const {
#pragma unroll
    for (int j = 0; j < kQuads; ++j) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        lines[first_column() + i][in_line(first_column(), first_row() + 16 * j)] = v[j][i];
      }
    }
  }
};

template <class T>
__global__ void __launch_bounds__(kTileThreads) plain_tiles(PlainProduct p, int splits) {
  begin_kernel();
  struct Stage {
    float x[kTileStep][kTileTokens], w[kTileStep][kTileRows];
  };
  __shared__ Stage stages[2];
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
  const int split = static_cast<int>(blockIdx.x) % splits;
  const int64_t head = blockIdx.z, first_row = int64_t{blockIdx.x / splits} * kTileRows,
                first_token = int64_t{blockIdx.y} * kTileTokens;
  // Rows and tokens past the end repeat the last: read twice, not written.
  TilePart<float, kTileTokens> x([&](int i) {
    return p.x + min(first_token + i, p.tokens - 1) * p.x_stride + head * p.x_head;
  });
  TilePart<T, kTileRows> w([&](int i) {
    return reinterpret_cast<const T*>(p.w.data + head * p.w.matrix_bytes) +
           (p.row_begin + min(first_row + i, p.row_count - 1)) * p.w.cols;
  });
  const int steps = static_cast<int>(ceil_div<int64_t>(p.w.cols, kTileStep));
  const int begin = steps * split / splits, end = steps * (split + 1) / splits;
  const int own_token = (warp % 2 * 8 + lane % 8) * 4, own_row = (warp / 2 * 4 + lane / 8) * 4;
  float sum[4][4] = {};
  x.load(int64_t{begin} * kTileStep, p.w.cols);
  w.load(int64_t{begin} * kTileStep, p.w.cols);
  for (int step = begin; step < end; ++step) {
    Stage& stage = stages[step % 2];
    x.store(stage.x);
    w.store(stage.w);
    __syncthreads();
    if (step + 1 < end) {
      x.load(int64_t{step + 1} * kTileStep, p.w.cols);
      w.load(int64_t{step + 1} * kTileStep, p.w.cols);
    }
#pragma unroll 8
    for (int k = 0; k < kTileStep; ++k) {
      const float4 a = *reinterpret_cast<const float4*>(&stage.x[k][in_line(k, own_token)]);
      const float4 b = *reinterpret_cast<const float4*>(&stage.w[k][in_line(k, own_row)]);
#pragma unroll
      for (int t = 0; t < 4; ++t) {
#pragma unroll
        for (int r = 0; r < 4; ++r) sum[t][r] = fmaf(element(a, t), element(b, r), sum[t][r]);
      }
    }
  }
  __syncthreads();  // all have read the stages, whose place takes the sums: [token][row]
  float* sums = &stages[0].x[0][0];
#pragma unroll
  for (int t = 0; t < 4; ++t) {
    *reinterpret_cast<float4*>(sums + (own_token + t) * kTileRows + own_row) =
        float4{sum[t][0], sum[t][1], sum[t][2], sum[t][3]};
  }
  __syncthreads();
  if (splits > 1) meet_cluster();
  for (int out = split * kTileThreads + thread; out < kTileTokens * kTileRows;
       out += splits * kTileThreads) {
    const int64_t t = first_token + out / kTileRows, n = first_row + out % kTileRows;
    if (t >= p.tokens || n >= p.row_count) continue;
    float v = 0;
    for (int rank = 0; rank < splits; ++rank) {
      v += splits > 1 ? load_of_rank(sums + out, rank) : sums[out];
    }
    if (p.bias) v += p.bias[n];
    float* y = p.y + t * p.y_stride + head * p.y_head + n;
    *y = p.accumulate ? *y + v : v;
  }
  if (splits > 1) wait_for_cluster();  // no block leaves while its sums are read
}

}  // namespace ktx::kernels

// Products of float weights with many tokens on tensor cores, as exact as in F32: routers of
// prompts and batches, and prompts of models kept in F16 or BF16 (sm_80).
//
// A float is the sum of three BF16 to 2^-25 of it (an F16 of two, a BF16 is one), and a product of
// two floats the sum of six of their products; the other three are too small. Those of 64 columns
// are added up by the tensor cores, the smallest first; their sums are added in F32. The error is
// that of F32: 4e-8 of the sum of magnitudes at worst, 3e-8 in F32 (2,048 columns).
//
// A block of four warps has 64 tokens, 64 rows and a range of columns; the other ranges are with
// the other blocks of its cluster (split-K), whose sums meet at the end in rising order. Steps of
// 64 columns pass through shared memory as planes of BF16 (split_bf16.cuh); a warp multiplies 32
// tokens and 32 rows.
//
// Roofline: the tensor cores (six BF16 products for one), beside the conversion of what is read.
// L2: a row of x is read once for every 64 rows, of the weights once for every 64 tokens.
#pragma once

#include <cuda_bf16.h>

#include <type_traits>

#include "kernels/cuda/common/cluster_sums.cuh"
#include "kernels/cuda/common/cuda_launch.cuh"
#include "kernels/cuda/common/split_bf16.cuh"
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

constexpr int kTileLines = 64, kTileStep = 64, kTileThreads = 128, kTileParts = 3;
using TilePlane = uint16_t[kTileLines * kTileStep];

// BF16 that a weight is the sum of.
template <class T>
constexpr int kPartsOf = sizeof(T) == 4            ? 3
                         : std::is_same_v<T, half> ? 2
                                                   : 1;

// A thread's share of kTileStep columns of kTileLines rows: a quad of columns of every eighth row.
template <class T>
class TileShare {
 public:
  // row_of(i): row i of the tile.
  template <class RowOf>
  __device__ __forceinline__ explicit TileShare(RowOf row_of) {
#pragma unroll
    for (int j = 0; j < kQuads; ++j) row_[j] = row_of(own_row(j)) + own_column();
  }
  // Zeros behind the last column.
  __device__ __forceinline__ void load(int64_t k, int64_t cols) {
#pragma unroll
    for (int j = 0; j < kQuads; ++j) {
      v_[j] = {};
      if (k + own_column() < cols) v_[j] = *reinterpret_cast<const FourOf<T>*>(row_[j] + k);
    }
  }
  __device__ __forceinline__ void store(TilePlane* planes) const {
#pragma unroll
    for (int j = 0; j < kQuads; ++j) {
      float rest[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) rest[i] = to_float(v_[j].v[i]);
#pragma unroll
      for (int part = 0; part < kPartsOf<T>; ++part) {
        uint2 packed = {pack_bf16(rest[0], rest[1]), pack_bf16(rest[2], rest[3])};
        const int place = split_place<kTileStep>(own_row(j), own_column());
        *reinterpret_cast<uint2*>(planes[part] + place) = packed;
        rest[0] -= __uint_as_float(packed.x << 16);
        rest[1] -= __uint_as_float(packed.x & 0xFFFF0000);
        rest[2] -= __uint_as_float(packed.y << 16);
        rest[3] -= __uint_as_float(packed.y & 0xFFFF0000);
      }
    }
  }

 private:
  static constexpr int kQuads = kTileLines * kTileStep / 4 / kTileThreads;
  __device__ static int own_row(int j) {
    return static_cast<int>(threadIdx.x) / 16 + 8 * j;
  }
  __device__ static int own_column() {
    return static_cast<int>(threadIdx.x) % 16 * 4;
  }
  const T* row_[kQuads];
  FourOf<T> v_[kQuads];
};

// The sums of a warp: 32 tokens by 32 rows, tiles of 16 by 8.
struct TileSums {
  float v[2][4][4] = {};

  // kParts: of the weights. x, w: planes, the largest parts first.
  template <int kParts>
  __device__ __forceinline__ void add(const TilePlane* x, const TilePlane* w, int warp, int lane) {
    float sums[2][4][4] = {};
#pragma unroll
    for (int step = 0; step < kTileStep / 16; ++step) {
      uint32_t a[kTileParts][2][4], b[kParts][2][4];
#pragma unroll
      for (int part = 0; part < kTileParts; ++part) {
#pragma unroll
        for (int m = 0; m < 2; ++m) {
          const int row = warp % 2 * 32 + 16 * m + lane % 16, column = 16 * step + lane / 16 * 8;
          load_matrices(a[part][m], x[part] + split_place<kTileStep>(row, column));
        }
      }
#pragma unroll
      for (int part = 0; part < kParts; ++part) {
#pragma unroll
        for (int pair = 0; pair < 2; ++pair) {  // of tiles
          const int row = warp / 2 * 32 + 16 * pair + lane / 16 * 8 + lane % 8;
          const int column = 16 * step + lane / 8 % 2 * 8;
          load_matrices(b[part][pair], w[part] + split_place<kTileStep>(row, column));
        }
      }
      // The smallest products first: of parts whose numbers add up to 2, then 1, then 0.
#pragma unroll
      for (int all = kTileParts - 1; all >= 0; --all) {
#pragma unroll
        for (int of_w = 0; of_w < kParts; ++of_w) {
          if (of_w > all) break;
#pragma unroll
          for (int m = 0; m < 2; ++m) {
#pragma unroll
            for (int n = 0; n < 4; ++n) {
              mma_bf16(sums[m][n], a[all - of_w][m], b[of_w][n / 2][n % 2 * 2],
                       b[of_w][n / 2][n % 2 * 2 + 1]);
            }
          }
        }
      }
    }
#pragma unroll
    for (int m = 0; m < 2; ++m) {
#pragma unroll
      for (int n = 0; n < 4; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) v[m][n][i] += sums[m][n][i];
      }
    }
  }
  // To sums[token][row] of the block.
  __device__ __forceinline__ void store(float* sums, int warp, int lane) const {
#pragma unroll
    for (int m = 0; m < 2; ++m) {
#pragma unroll
      for (int n = 0; n < 4; ++n) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const int token = warp % 2 * 32 + 16 * m + lane / 4 + 8 * i;
          const int row = warp / 2 * 32 + 8 * n + lane % 4 * 2;
          *reinterpret_cast<float2*>(sums + token * kTileLines + row) =
              float2{v[m][n][2 * i], v[m][n][2 * i + 1]};
        }
      }
    }
  }
};

template <class T>
__global__ void __launch_bounds__(kTileThreads) plain_tiles(PlainProduct p, int splits) {
#if __CUDA_ARCH__ >= 800
  begin_kernel();
  __shared__ __align__(128) TilePlane planes[2 * kTileParts];
  static_assert(sizeof(planes) >= kTileLines * kTileLines * sizeof(float));
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
  const int split = static_cast<int>(blockIdx.x) % splits;
  const int64_t head = blockIdx.z, first_row = int64_t{blockIdx.x / splits} * kTileLines,
                first_token = int64_t{blockIdx.y} * kTileLines;
  // Rows and tokens past the end repeat the last: read twice, not written.
  TileShare<float> x([&](int i) {
    return p.x + min(first_token + i, p.tokens - 1) * p.x_stride + head * p.x_head;
  });
  TileShare<T> w([&](int i) {
    return reinterpret_cast<const T*>(p.w.data + head * p.w.matrix_bytes) +
           (p.row_begin + min(first_row + i, p.row_count - 1)) * p.w.cols;
  });
  const int steps = static_cast<int>(ceil_div<int64_t>(p.w.cols, kTileStep));
  const int begin = steps * split / splits, end = steps * (split + 1) / splits;
  TileSums own;
  x.load(int64_t{begin} * kTileStep, p.w.cols);
  w.load(int64_t{begin} * kTileStep, p.w.cols);
  for (int step = begin; step < end; ++step) {
    x.store(planes);
    w.store(planes + kTileParts);
    __syncthreads();
    if (step + 1 < end) {
      x.load(int64_t{step + 1} * kTileStep, p.w.cols);
      w.load(int64_t{step + 1} * kTileStep, p.w.cols);
    }
    own.add<kPartsOf<T>>(planes, planes + kTileParts, warp, lane);
    __syncthreads();
  }
  auto* sums = reinterpret_cast<float*>(planes);
  own.store(sums, warp, lane);
  __syncthreads();
  if (splits > 1) meet_cluster();
  for (int out = split * kTileThreads + thread; out < kTileLines * kTileLines;
       out += splits * kTileThreads) {
    const int64_t t = first_token + out / kTileLines, n = first_row + out % kTileLines;
    if (t >= p.tokens || n >= p.row_count) continue;
    float v = 0;
    if (splits == 1) {
      v = sums[out];
    } else {
      float part[kMostSplits];  // asked for all at once
#pragma unroll
      for (int s = 0; s < kMostSplits; ++s) part[s] = s < splits ? load_of_rank(sums + out, s) : 0;
#pragma unroll
      for (int s = 0; s < kMostSplits; ++s) v += part[s];
    }
    if (p.bias) v += p.bias[n];
    float* y = p.y + t * p.y_stride + head * p.y_head + n;
    *y = p.accumulate ? *y + v : v;
  }
  if (splits > 1) wait_for_cluster();  // no block leaves while its sums are read
#endif
}

}  // namespace ktx::kernels

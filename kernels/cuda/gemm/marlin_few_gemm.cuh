// Skinny GEMM: products of 2 to 16 tokens with marlin weights, at the speed of the memory.
//
// The weights are the A operand of mma.m16n8k16 (16 rows x 16 columns), eight tokens the
// columns of B, so 2 tokens and 8 cost the same. A block of up to 8 warps takes 1 to 8
// groups of strips (of one or two; of gate and of up) and a range of columns; the other
// ranges are with the other blocks of its cluster (split-K; sm_90, elsewhere one range), so
// that a piece of x is read by few blocks and still all SMs have work:
//
//   8192 x 8192, 16 tokens: 32 clusters of 8 blocks, 256 rows and 1024 columns to a block
//
// Each warp has a ring of tiles in shared memory that it fills itself (marlin_ring.cuh),
// from before the kernel ahead has ended. Activations are converted here: a panel of up to
// 1024 columns goes to F16, with a power of two per token taken out, and to shared memory in
// the order of B fragments. Sums meet at the end, in a fixed order: the warps of a strip,
// then the blocks of a cluster, which read each other's shared memory.
//
// Roofline: bytes of the weights / memory bandwidth; for Q4_K about 2.5 instructions a
// weight and lane. Shared memory: a panel of 8 to 32 KiB and 8 rings of 2 to 4 stages;
// where it can be, two blocks to an SM.
#pragma once

#include <atomic>
#include <cmath>

#include "kernels/cuda/common/cluster_sums.cuh"
#include "kernels/cuda/common/cuda_launch.cuh"
#include "kernels/cuda/marlin/marlin_ring.cuh"
#include "kernels/cuda/matmul/marlin_products.cuh"

namespace ktx::kernels {

// How a kernel of few tokens uses shared memory.
template <DType kType, int kColumns, int kSources>
struct FewMemory {
  static constexpr int kHalf = 112 * 1024;           // of an SM's, with what is static
  static constexpr int kTileX = 8 * kColumns * 512;  // bytes of x for 256 columns
  static constexpr int kLeast = kRingWarps * 2 * kSources * 4 * MarlinTile<kType>::kSpanBytes;
  static constexpr bool kTwoBlocks = kLeast + 2 * kTileX <= kHalf;
  static constexpr int kPanelTiles = kLeast + 4 * kTileX <= kHalf ? 4 : 2;
  static constexpr int kPanelBytes = kPanelTiles * kTileX;
  using Ring = MarlinRing<kType, kSources, kHalf - kPanelBytes>;
  static constexpr int bytes(int warps) {
    const int rings = warps * Ring::kBytes, sums = warps * kSources * 16 * 8 * kColumns * 4;
    return kPanelBytes + (rings > sums ? rings : sums);
  }
};

// 128 * kPieces columns of a token as halves with a power of two taken out, which is
// returned; zeros from `cols` on. xs: the place of the token in the first of its B fragments.
template <int kColumns, int kPieces>
__device__ __forceinline__ float stage_token(const float* x, int cols, uint2* xs, int lane) {
  float4 v[kPieces];
  float largest = 0;
#pragma unroll
  for (int j = 0; j < kPieces; ++j) {
    const int k = 128 * j + 4 * lane;
    v[j] = k < cols ? *reinterpret_cast<const float4*>(x + k) : float4{0, 0, 0, 0};
  }
#pragma unroll
  for (int j = 0; j < kPieces; ++j) {
    largest = fmaxf(fmaxf(fmaxf(largest, fabsf(v[j].x)), fmaxf(fabsf(v[j].y), fabsf(v[j].z))),
                    fabsf(v[j].w));
  }
  int exponent = static_cast<int>(__float_as_uint(warp_largest(largest)) >> 23) - 127 - 9;
  exponent = max(-100, min(100, exponent));
  const float inverse = __uint_as_float(static_cast<uint32_t>(127 - exponent) << 23);
#pragma unroll
  for (int j = 0; j < kPieces; ++j) {
    const int chunk = 4 * j + lane / 8;
    xs[chunk * kColumns * 64 + lane % 8] = {pack_halves(v[j].x * inverse, v[j].y * inverse),
                                            pack_halves(v[j].z * inverse, v[j].w * inverse)};
  }
  return __uint_as_float(static_cast<uint32_t>(127 + exponent) << 23);
}

// kColumns: 8 * kColumns tokens at most. kSources: strips of a warp; kPaired: one of gate
// and one of up. Block x of the grid: range x % splits of group x / splits.
template <DType kType, int kColumns, int kSources, bool kPaired>
__global__ void __launch_bounds__(kRingThreads, 2)
    marlin_few_gemm(MarlinProduct p, int block_strips, int splits) {
  using Tile = MarlinTile<kType>;
  using Memory = FewMemory<kType, kColumns, kSources>;
  using Ring = typename Memory::Ring;
  constexpr int kTokens = 8 * kColumns, kPanelTiles = Memory::kPanelTiles;
  extern __shared__ uint4 dynamic_shared[];
  __shared__ const float* x_row[kTokens];
  __shared__ float* y_row[kTokens];
  __shared__ float scale[kTokens];
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
  const int threads = static_cast<int>(blockDim.x);
  const int split = static_cast<int>(blockIdx.x) % splits;
  const int group = static_cast<int>(blockIdx.x) / splits;

  // The matrix and the tokens of this block.
  let_next_kernel_start();
  int matrix = static_cast<int>(blockIdx.y), tokens;
  if (p.offsets) {
    wait_for_inputs();
    const ExpertPiece piece =
        find_expert_piece(p.offsets, p.experts, static_cast<int>(blockIdx.y), kTokens);
    if (p.places && blockIdx.x == 0 && blockIdx.y == 0) {  // pairs of no expert
      for (int i = p.offsets[p.experts] + thread; i < p.tokens; i += threads) {
        p.places[p.order[i]] = -1;
      }
    }
    if (piece.expert < 0) return;  // as does all of the cluster
    matrix = piece.expert;
    tokens = piece.count;
    if (thread < tokens) {
      const int pair = p.order[piece.first + thread];
      x_row[thread] = p.x + pair / p.x_div * p.x_stride;
      y_row[thread] = p.y + pair * p.y_stride;
      if (p.places && blockIdx.x == 0) p.places[pair] = piece.first + thread;
    }
  } else {
    const int first = static_cast<int>(blockIdx.z) * kTokens;
    tokens = min(kTokens, p.tokens - first);
    if (thread < tokens) {
      x_row[thread] = p.x + (first + thread) * p.x_stride + matrix * p.x_head;
      y_row[thread] = p.y + (first + thread) * p.y_stride + matrix * p.y_head;
    }
  }
  __syncthreads();

  const int warps_per_strip = threads / 32 / block_strips;
  constexpr int kRowStrips = kPaired ? 1 : kSources;  // strips of rows of a warp
  const int strip_begin = p.strip_begin() + group * block_strips * kRowStrips;
  const int tiles = (p.cols + 255) / 256;
  const int begin = tiles * split / splits, end = tiles * (split + 1) / splits;
  uint4* rest = dynamic_shared + Memory::kPanelBytes / 16;
  Ring ring(p, matrix, kPaired, strip_begin + warp / warps_per_strip * kRowStrips, p.strip_end(),
            begin + warp % warps_per_strip, warps_per_strip, rest, warp, lane, end);
  ring.start(lane);
  if (!p.offsets) wait_for_inputs();

  float total[kSources][kColumns][4] = {};
  int item = 0;
  for (int panel = begin; panel < end; panel += kPanelTiles) {
    if (panel != begin) __syncthreads();  // all are done with the panel before
    for (int token = warp; token < tokens; token += threads / 32) {
      uint2* xs = reinterpret_cast<uint2*>(dynamic_shared) + token / 8 * 64 + token % 8 * 8;
      const float s = stage_token<kColumns, 2 * kPanelTiles>(x_row[token] + panel * 256,
                                                             p.cols - panel * 256, xs, lane);
      if (lane == 0) scale[token] = s;
    }
    __syncthreads();
    float sum[kSources][kColumns][4] = {};
    for (; item < ring.count && ring.tile(item) < panel + kPanelTiles; ++item) {
      const uint4* xs = dynamic_shared + (ring.tile(item) - panel) * (Memory::kTileX / 16) + lane;
      ring.wait(lane);
      Tile w[kSources];
#pragma unroll
      for (int m = 0; m < kSources; ++m) {
        w[m].template load<false>(ring.stage(m), ring.spans(item), lane);
      }
#pragma unroll
      for (int c = 0; c < 8; ++c) {
        uint4 b[kColumns];
#pragma unroll
        for (int n = 0; n < kColumns; ++n) b[n] = xs[(c * kColumns + n) * 32];
#pragma unroll
        for (int m = 0; m < kSources; ++m) {
          uint32_t a[2][4];
          w[m].fragment(c, *reinterpret_cast<uint32_t(*)[8]>(a));
#pragma unroll
          for (int n = 0; n < kColumns; ++n) {
            mma_f16(sum[m][n], a[0], b[n].x, b[n].y);
            mma_f16(sum[m][n], a[1], b[n].z, b[n].w);
          }
        }
      }
    }
#pragma unroll
    for (int n = 0; n < kColumns; ++n) {
#pragma unroll
      for (int v = 0; v < 4; ++v) {
        const float s = scale[8 * n + lane % 4 * 2 + v % 2];
#pragma unroll
        for (int m = 0; m < kSources; ++m) total[m][n][v] += sum[m][n][v] * s;
      }
    }
  }
  wait_async<0>();
  __syncthreads();  // the rings are done with: their memory takes the sums

  float* sums = reinterpret_cast<float*>(rest);
  store_sums<kSources, kColumns>(total, sums, warp, lane);
  const SumPlace place = {tokens, block_strips, warps_per_strip, split, splits};
  add_sums<kTokens, kSources, kPaired>(
      sums, place, [&](int token, int local, int quad, const auto& v) {
        const int n = (strip_begin + local) * 16 + quad * 4 - p.row_begin;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          if (n + i < 0 || n + i >= p.row_count) continue;
          float* y = y_row[token] + n + i;
          float value = element(v[0], i);
          if constexpr (kPaired) {
            *y = row_glu(p.glu, value + p.bias_of(0, matrix, n + i),
                         element(v[1], i) + p.bias_of(1, matrix, n + i));
          } else {
            if (p.bias[0]) value += p.bias_of(0, matrix, n + i);
            *y = p.accumulate ? *y + value : value;
          }
        }
      });
}

// Warps of a block, how many groups of strips it takes, and ranges of columns.
struct FewShape {
  int warps, strips, splits;
};
// The shape of least time by a count fitted to all shapes of five matrices (one H200, Q4_K and
// Q6_K, 2 and 16 tokens; where it errs it loses up to 5 %). In tiles of two strips (2 us):
// five to start and end, 0.9 for each panel of x, the tiles of a warp, 0.15 for each block of
// a cluster; all times the rounds that the clusters take. room(splits): clusters at once.
template <class Room>
FewShape few_shape(int warps, int groups, int sources, int work, int cols, int panel_tiles,
                   Room room) {
  const int tiles = ceil_div(cols, 256);
  const int most = compute_capability() >= 90 ? min(kMostSplits, tiles) : 1;
  FewShape best{warps, warps, 1};
  float least = 0;
  for (int splits = 1; splits <= most; ++splits) {
    const int range = ceil_div(tiles, splits);
    for (int strips = warps; strips >= 1; strips /= 2) {
      const int share = warps / strips;  // warps to a strip
      if (share > 1 && share > min(panel_tiles, range)) break;
      const float rounds =
          static_cast<float>(ceil_div(groups, strips) * work) / static_cast<float>(room(splits));
      const float time = (5 + 0.9f * static_cast<float>(ceil_div(range, panel_tiles)) +
                          0.5f * static_cast<float>(sources * ceil_div(range, share)) +
                          0.15f * static_cast<float>(splits)) *
                         (rounds <= 4 ? std::ceil(rounds) : rounds + 0.5f);
      if (least == 0 || time < least) {
        least = time;
        best = {warps, strips, splits};
      }
    }
  }
  return best;
}

template <DType kType, int kColumns, int kSources, bool kPaired>
Status launch_few(const MarlinProduct& p, int work, cudaStream_t stream) {
  using Memory = FewMemory<kType, kColumns, kSources>;
  constexpr auto kKernel = marlin_few_gemm<kType, kColumns, kSources, kPaired>;
  int warps = kRingWarps;
  while (warps > 1 && Memory::bytes(warps) > shared_memory_limit() - 2048) warps /= 2;
  const int threads = 32 * warps, bytes = Memory::bytes(warps);
  // Clusters of each size that run at once: asked once, all GPUs of a machine being alike.
  static std::atomic<int> rooms[kMostSplits + 1];
  const auto room = [&](int splits) {
    if (rooms[splits] == 0) rooms[splits] = clusters_at_once(kKernel, splits, threads, bytes);
    return rooms[splits].load();
  };
  const int groups = kPaired ? p.strips() : ceil_div(p.strips(), kSources);
  const int pieces = p.offsets ? 1 : ceil_div(p.tokens, 8 * kColumns);
  const FewShape shape =
      few_shape(warps, groups, kSources, work * pieces, p.cols, Memory::kPanelTiles, room);
  const dim3 grid(ceil_div(groups, shape.strips) * shape.splits, work, pieces);
  return launch_clusters("few tokens times marlin weights", kKernel, grid, shape.splits, threads,
                         bytes, stream, p, shape.strips, shape.splits);
}

template <DType kType, int kColumns>
Status launch_few_columns(const MarlinProduct& p, cudaStream_t stream) {
  const int work = p.offsets ? expert_pieces(p.tokens, p.experts, 8 * kColumns) : p.matrices;
  if (p.w[1]) return launch_few<kType, kColumns, 2, true>(p, work, stream);
  if constexpr (FewMemory<kType, kColumns, 2>::kTwoBlocks) {
    if (two_strips(p.strips(), work, p.cols)) {
      return launch_few<kType, kColumns, 2, false>(p, work, stream);
    }
  }
  return launch_few<kType, kColumns, 1, false>(p, work, stream);
}

template <DType kType>
Status launch_few_type(const MarlinProduct& p, cudaStream_t stream) {
  // Pieces of experts: with few pairs to an expert eight in a piece are enough.
  const bool wide = p.offsets ? p.tokens > 6 * p.experts : p.tokens > 8;
  return wide ? launch_few_columns<kType, 2>(p, stream) : launch_few_columns<kType, 1>(p, stream);
}

}  // namespace ktx::kernels

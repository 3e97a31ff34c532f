// Products of 2 to 16 tokens with marlin weights, at the speed of the memory.
//
// The weights are the A operand of mma.m16n8k16 (16 rows x 16 columns), eight tokens the
// columns of B, so 2 tokens and 8 cost the same. Up to 8 warps a block and 1 to 8 pairs of
// strips of 16 rows; the warps of a pair share its tiles in turns and add up at the end, in a fixed
// order. Each warp has a ring of tiles in shared memory that it fills itself (marlin_ring.cuh);
// activations come in F16 (half_rows), straight from L1 into B fragments: a lane reads 16
// neighbouring bytes of a row.
//
// Roofline: bytes of the weights / memory bandwidth; for Q4_K about 2.7 instructions a
// weight and lane. Shared memory: 8 rings of 2 to 4 stages, at most 110 KiB.
#pragma once

#include "kernels/cuda/cuda_launch.cuh"
#include "kernels/cuda/marlin_products.cuh"
#include "kernels/cuda/marlin_ring.cuh"

namespace ktx::kernels {

// kColumns: 8 * kColumns tokens at most. kSources: strips of a warp; kPaired: one of gate
// and one of up.
template <DType kType, int kColumns, int kSources, bool kPaired>
__global__ void __launch_bounds__(kRingThreads, 2) marlin_few(MarlinProduct p, int block_strips) {
  using Tile = MarlinTile<kType>;
  using Ring = MarlinRing<kType, kSources>;
  constexpr int kTokens = 8 * kColumns;
  extern __shared__ uint4 dynamic_shared[];
  __shared__ int64_t x_row[kTokens];
  __shared__ float* y_row[kTokens];
  __shared__ float scale[kTokens];
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
  const int threads = static_cast<int>(blockDim.x);

  // Who is served.
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
    if (piece.expert < 0) return;
    matrix = piece.expert;
    tokens = piece.count;
    if (thread < tokens) {
      const int pair = p.order[piece.first + thread];
      x_row[thread] = pair / p.x_div;
      y_row[thread] = p.y + pair * p.y_stride;
      if (p.places && blockIdx.x == 0) p.places[pair] = piece.first + thread;
    }
  } else {
    const int first = static_cast<int>(blockIdx.z) * kTokens;
    tokens = min(kTokens, p.tokens - first);
    if (thread < tokens) {
      x_row[thread] = int64_t{first + thread} * p.matrices + matrix;
      y_row[thread] = p.y + (first + thread) * p.y_stride + matrix * p.y_head;
    }
  }
  __syncthreads();

  const int warps_per_strip = threads / 32 / block_strips;
  constexpr int kRowStrips = kPaired ? 1 : kSources;  // strips of rows of a warp
  const int strip_begin =
      p.strip_begin() + static_cast<int>(blockIdx.x) * block_strips * kRowStrips;
  const int strip_end = p.strip_end();
  Ring ring(p, matrix, kPaired, strip_begin + warp / warps_per_strip * kRowStrips, strip_end,
            warp % warps_per_strip, warps_per_strip, dynamic_shared, warp, lane);
  const uint16_t* x[kColumns];
  bool live[kColumns];
#pragma unroll
  for (int n = 0; n < kColumns; ++n) {
    const int token = 8 * n + lane / 4;
    live[n] = token < tokens;
    x[n] = p.xh + (live[n] ? x_row[token] : x_row[0]) * p.half_cols + lane % 4 * 8;
  }
  float sum[kSources][kColumns][4] = {};
  ring.start(lane);
  if (!p.offsets) wait_for_inputs();
  if (thread < tokens) scale[thread] = p.x_scale[x_row[thread]];
  for (int item = 0; item < ring.count; ++item) {
    const int column = ring.tile(item) * 256;
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
      for (int n = 0; n < kColumns; ++n) {
        b[n] = live[n] ? *reinterpret_cast<const uint4*>(x[n] + column + 32 * c)
                       : uint4{0, 0, 0, 0};
      }
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
  wait_async<0>();
  __syncthreads();  // the rings are done with: their memory takes the sums

  float* sums = reinterpret_cast<float*>(dynamic_shared);
  constexpr int kSums = kSources * 16 * kTokens;  // of a warp: [matrix][token][row]
#pragma unroll
  for (int m = 0; m < kSources; ++m) {
#pragma unroll
    for (int n = 0; n < kColumns; ++n) {
#pragma unroll
      for (int v = 0; v < 4; ++v) {
        const int token = 8 * n + lane % 4 * 2 + v % 2, row = lane / 4 + v / 2 * 8;
        sums[warp * kSums + (m * kTokens + token) * 16 + row] = sum[m][n][v];
      }
    }
  }
  __syncthreads();
  const int rows = block_strips * kRowStrips * 16;
  for (int out = thread; out < tokens * rows; out += threads) {
    const int row = out % 16, local = out / 16 % (rows / 16), token = out / rows;
    const int n = (strip_begin + local) * 16 + row - p.row_begin;
    if (n < 0 || n >= p.row_count) continue;
    const int first_warp = local / kRowStrips * warps_per_strip;
    const float* from = sums + token * 16 + row;
    float v[kPaired ? 2 : 1] = {};
    for (int w = first_warp; w < first_warp + warps_per_strip; ++w) {
      if constexpr (kPaired) {
        v[0] += from[w * kSums];
        v[1] += from[w * kSums + kTokens * 16];
      } else {
        v[0] += from[w * kSums + local % kRowStrips * kTokens * 16];
      }
    }
    float* y = y_row[token] + n;
    if constexpr (kPaired) {
      *y = silu(v[0] * scale[token]) * (v[1] * scale[token]);
    } else {
      v[0] *= scale[token];
      if (p.bias) v[0] += p.bias[n];
      *y = p.accumulate ? *y + v[0] : v[0];
    }
  }
}

template <DType kType, int kColumns, int kSources, bool kPaired>
Status launch_few(const MarlinProduct& p, int work, cudaStream_t stream) {
  const int groups = kPaired ? p.strips() : ceil_div(p.strips(), kSources);
  const int pieces = p.offsets ? 1 : ceil_div(p.tokens, 8 * kColumns);
  const RingShape shape = ring_shape<kType, kSources>(groups, work * pieces, p.cols);
  const dim3 grid(ceil_div(groups, shape.strips), work, pieces);
  const int sums = shape.warps * kSources * 16 * 8 * kColumns * 4;
  return launch("few tokens times marlin weights", marlin_few<kType, kColumns, kSources, kPaired>,
                grid, 32 * shape.warps, max(shape.bytes, sums), stream, p, shape.strips);
}

template <DType kType, int kColumns>
Status launch_few_columns(const MarlinProduct& p, cudaStream_t stream) {
  const int work = p.offsets ? expert_pieces(p.tokens, p.experts, 8 * kColumns) : p.matrices;
  if (p.w[1]) return launch_few<kType, kColumns, 2, true>(p, work, stream);
  return two_strips(p.strips(), work, p.cols)
             ? launch_few<kType, kColumns, 2, false>(p, work, stream)
             : launch_few<kType, kColumns, 1, false>(p, work, stream);
}

template <DType kType>
Status launch_few_type(const MarlinProduct& p, cudaStream_t stream) {
  // Pieces of experts: with few pairs to an expert eight in a piece are enough.
  const bool wide = p.offsets ? p.tokens > 6 * p.experts : p.tokens > 8;
  return wide ? launch_few_columns<kType, 2>(p, stream) : launch_few_columns<kType, 1>(p, stream);
}

}  // namespace ktx::kernels

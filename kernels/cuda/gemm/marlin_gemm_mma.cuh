// GEMM: products of many tokens with marlin weights. Weights are decoded in registers and used
// for up to 64 tokens.
//
// A block of 8 warps takes 16 strips (256 rows; or 8 strips of gate and the same of up)
// and kTokens tokens. Tiles of 256 columns of weights and activations pass through shared
// memory in two stages (cp.async); a warp decodes 32 columns of its two strips into A
// fragments and multiplies them with all tokens. Activations come in F16 (half_rows).
//
// Roofline: compute; a warp issues 32 products per 2 x 16 x 32 weights of 64 tokens,
// beside about 100 other instructions. Shared memory: 2 * (kTokens * 512 + 16 tiles)
// bytes: 138 KiB for Q4_K, 204 KiB for Q8_0 at 64 tokens; 32 tokens where that is too much.
// sm_80 and newer; on Hopper marlin_gemm_wgmma.cuh takes its place.
#pragma once

#include "kernels/cuda/common/cuda_launch.cuh"
#include "kernels/cuda/marlin/marlin_tile.cuh"
#include "kernels/cuda/marlin/marlin_write.cuh"
#include "kernels/cuda/matmul/marlin_products.cuh"

namespace ktx::kernels {

constexpr int kManyThreads = 256;
constexpr int kManyStrips = 16;

// Piece (chunk, token, quarter) of x in shared memory; neighbouring chunks are one token
// apart, so that writers of a row meet all banks.
__device__ __forceinline__ int x_piece(int chunk, int token, int quarter, int tokens) {
  return (chunk * tokens + (token ^ (chunk & 1))) * 4 + quarter;
}

template <DType kType, int kTokens, bool kPaired>
__global__ void __launch_bounds__(kManyThreads, 1) marlin_gemm_mma(MarlinProduct p) {
  begin_kernel();
  using Tile = MarlinTile<kType>;
  constexpr int kTileBytes = 4 * Tile::kSpanBytes;
  constexpr int kStageBytes = kTokens * 512 + kManyStrips * kTileBytes;
  extern __shared__ uint4 dynamic_shared[];
  __shared__ int64_t x_row[kTokens];
  __shared__ float* y_row[kTokens];
  __shared__ float scale[kTokens];
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;

  // The matrix and the tokens of this block. blockIdx.x: tokens, so that neighbours share weights.
  int matrix = 0, tokens;
  if (p.offsets) {
    const ExpertPiece piece =
        find_expert_piece(p.offsets, p.experts, static_cast<int>(blockIdx.x), kTokens);
    forget_pairs_of_no_expert<kManyThreads>(p, thread);
    if (piece.expert < 0) return;
    matrix = piece.expert;
    tokens = piece.count;
    if (thread < kTokens) {
      const int pair = p.order[piece.first + min(thread, tokens - 1)];
      x_row[thread] = pair / p.x_div;
      y_row[thread] = p.y + pair * p.y_stride;
      if (p.places && blockIdx.y == 0 && thread < tokens) p.places[pair] = piece.first + thread;
    }
  } else {
    const int first = static_cast<int>(blockIdx.x) * kTokens;
    tokens = min(kTokens, p.tokens - first);
    if (thread < kTokens) {
      x_row[thread] = first + min(thread, tokens - 1);
      y_row[thread] = p.y + (first + thread) * p.y_stride;
    }
  }
  __syncthreads();
  if (thread < kTokens) scale[thread] = p.x_scale[x_row[thread]];

  // Strips: warp w has 2w and 2w + 1 of the block's, or (paired) w of gate and of up.
  constexpr int kRowStrips = kPaired ? kManyStrips / 2 : kManyStrips;
  const MarlinTiles<Tile> tiles(p.cols);
  const int strip_begin = p.strip_begin() + static_cast<int>(blockIdx.y) * kRowStrips;
  const int strip_end = p.strip_end();
  const uint8_t* next_weights[2];  // this lane's bytes of the warp's strips
#pragma unroll
  for (int m = 0; m < 2; ++m) {
    const int number = strip_begin + (kPaired ? warp : 2 * warp + m), source = kPaired ? m : 0;
    next_weights[m] = p.w[source] + matrix * p.matrix_bytes[source] +
                      min(number, strip_end - 1) * p.strip_bytes + lane * 16;
  }
  const uint16_t* next_x[kTokens / 8];  // a warp fetches every eighth row, a lane 16 bytes
#pragma unroll
  for (int j = 0; j < kTokens / 8; ++j) {
    next_x[j] = p.xh + x_row[warp + 8 * j] * p.half_cols + lane * 8;
  }
  const auto fetch_to_shared = [&](int tile, uint4* stage) {
#pragma unroll
    for (int j = 0; j < kTokens / 8; ++j) {
      copy_async16(stage + x_piece(lane / 4, warp + 8 * j, lane % 4, kTokens), next_x[j], true);
      next_x[j] += 256;
    }
    const int bytes = Tile::kWide ? kTileBytes : tiles.spans(tile) * Tile::kSpanBytes;
#pragma unroll
    for (int m = 0; m < 2; ++m) {
      uint8_t* to = reinterpret_cast<uint8_t*>(stage + kTokens * 32) + (2 * warp + m) * kTileBytes;
#pragma unroll
      for (int i = 0; i < (kTileBytes + 511) / 512; ++i) {
        const int at = i * 512 + lane * 16;
        if ((Tile::kWide && (i + 1) * 512 <= kTileBytes) || at < bytes) {
          copy_async16(to + at, next_weights[m] + i * 512, true);
        }
      }
      next_weights[m] += kTileBytes;
    }
    commit_async();
  };

  float sum[2][kTokens / 8][4] = {};
  fetch_to_shared(0, dynamic_shared);
  for (int tile = 0; tile < tiles.count; ++tile) {
    uint4* stage = dynamic_shared + tile % 2 * (kStageBytes / 16);
    if (tile + 1 < tiles.count) {
      fetch_to_shared(tile + 1, dynamic_shared + (tile + 1) % 2 * (kStageBytes / 16));
      wait_async<1>();
    } else {
      wait_async<0>();
    }
    __syncthreads();
    const uint8_t* weights = reinterpret_cast<const uint8_t*>(stage + kTokens * 32);
    Tile w[2];
#pragma unroll
    for (int m = 0; m < 2; ++m) {
      w[m].template load<false>(weights + (2 * warp + m) * kTileBytes, tiles.spans(tile), lane);
    }
#pragma unroll
    for (int c = 0; c < 8; ++c) {
      uint32_t a[2][2][4];
#pragma unroll
      for (int m = 0; m < 2; ++m) {
        w[m].fragment(c, *reinterpret_cast<uint32_t(*)[8]>(a[m]));
      }
#pragma unroll
      for (int n = 0; n < kTokens / 8; ++n) {
        const uint4 b = stage[x_piece(c, 8 * n + lane / 4, lane % 4, kTokens)];
#pragma unroll
        for (int m = 0; m < 2; ++m) {
          mma_f16(sum[m][n], a[m][0], b.x, b.y);
          mma_f16(sum[m][n], a[m][1], b.z, b.w);
        }
      }
    }
    __syncthreads();
  }

  write_block<kPaired>(p, sum, scale, y_row, tokens, matrix, strip_begin, warp, lane);
}

template <DType kType, int kTokens>
constexpr int many_shared_bytes() {
  return 2 * (kTokens * 512 + kManyStrips * 4 * MarlinTile<kType>::kSpanBytes);
}

template <DType kType, int kTokens>
Status launch_many(const MarlinProduct& p, cudaStream_t stream) {
  const int pieces =
      p.offsets ? expert_pieces(p.tokens, p.experts, kTokens) : ceil_div(p.tokens, kTokens);
  const dim3 grid(pieces, ceil_div(p.strips(), p.w[1] ? kManyStrips / 2 : kManyStrips));
  constexpr int kShared = many_shared_bytes<kType, kTokens>();
  const char* what = "many tokens times marlin weights";
  if (p.w[1]) {
    return launch(what, marlin_gemm_mma<kType, kTokens, true>, grid, kManyThreads, kShared, stream,
                  p);
  }
  return launch(what, marlin_gemm_mma<kType, kTokens, false>, grid, kManyThreads, kShared, stream,
                p);
}

template <DType kType>
Status launch_many_type(const MarlinProduct& p, cudaStream_t stream) {
  const bool fits = many_shared_bytes<kType, 64>() + 2048 <= shared_memory_limit();
  // Pieces of experts are small: as wide as their average.
  const bool narrow = p.offsets ? p.tokens < 40 * p.experts : p.tokens <= 32;
  return fits && !narrow ? launch_many<kType, 64>(p, stream) : launch_many<kType, 32>(p, stream);
}

}  // namespace ktx::kernels

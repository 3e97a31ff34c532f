// GEMM: products of many tokens with marlin weights on Hopper: wgmma, weights decoded in
// registers as its A operand.
//
// A block of two warpgroups takes 16 strips (256 rows; or 8 strips of gate and the same of
// up) and kTokens tokens. A warp decodes 32 columns of its two strips into A fragments while
// the products of the 32 before run. Activations come in F16 (half_rows, for wgmma: the
// columns of every 32 in the order in which marlin fragments have them) and pass through shared
// memory 128 columns at a time, weights 256, in copies that one thread starts (rows of experts,
// which are gathered: all threads, cp.async).
//
// Roofline: compute. A product of 64 rows, 128 tokens and 16 columns keeps the tensor cores
// busy for 64 cycles; beside it a warp issues about 20 instructions of decoding. L2: 25
// bytes a cycle and SM at 128 tokens. Shared memory: three to six stages of
// kTokens * 256 bytes, two of 16 tiles; 170 KiB for Q4_K at 128 tokens.
#pragma once

#include "kernels/cuda/common/cuda_launch.cuh"
#include "kernels/cuda/common/wgmma.cuh"
#include "kernels/cuda/marlin/marlin_tile.cuh"
#include "kernels/cuda/marlin/marlin_write.cuh"
#include "kernels/cuda/matmul/marlin_products.cuh"

namespace ktx::kernels {

constexpr int kWideThreads = 256;
constexpr int kWideStrips = 16;

template <DType kType, int kTokens>
struct WideMemory {
  static constexpr int kTileBytes = 4 * MarlinTile<kType>::kSpanBytes;
  static constexpr int kXBytes = kTokens * 256;  // of 128 columns
  static constexpr int kWeightBytes = kWideStrips * kTileBytes;
  // Stages of x that are asked for ahead; one is in use, one read by products still running.
  static constexpr int kAhead = kTokens == 128 ? 1 : kTokens == 64 ? 2 : 4;
  static constexpr int kXStages = kAhead + 2;
  static constexpr int kBytes = kXStages * kXBytes + 2 * kWeightBytes + 1024;  // to align
};

template <DType kType, int kTokens, bool kPaired>
__global__ void __launch_bounds__(kWideThreads, 1) marlin_gemm_wgmma(MarlinProduct p) {
  let_next_kernel_start();
  if (p.offsets) wait_for_inputs();
  using Tile = MarlinTile<kType>;
  using Memory = WideMemory<kType, kTokens>;
  constexpr int kTileBytes = Memory::kTileBytes;
  extern __shared__ uint8_t wide_shared[];
  __shared__ const uint16_t* x_row[kTokens];
  __shared__ float* y_row[kTokens];
  __shared__ float scale[kTokens];
  __shared__ const uint8_t* strip_from[kWideStrips];
  __shared__ uint64_t x_full[Memory::kXStages], weights_full[2];
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;

  // Who is served. blockIdx.x: tokens, so that blocks side by side share their weights.
  int matrix = 0, tokens;
  if (p.offsets) {
    const ExpertPiece piece =
        find_expert_piece(p.offsets, p.experts, static_cast<int>(blockIdx.x), kTokens);
    forget_pairs_of_no_expert<kWideThreads>(p, thread);
    if (piece.expert < 0) return;
    matrix = piece.expert;
    tokens = piece.count;
    if (thread < kTokens) {
      const int pair = p.order[piece.first + min(thread, tokens - 1)];
      x_row[thread] = p.xh + pair / p.x_div * p.half_cols;
      y_row[thread] = p.y + pair * p.y_stride;
      scale[thread] = p.x_scale[pair / p.x_div];
      if (p.places && blockIdx.y == 0 && thread < tokens) p.places[pair] = piece.first + thread;
    }
  } else {
    const int first = static_cast<int>(blockIdx.x) * kTokens;
    tokens = min(kTokens, p.tokens - first);
    if (thread < kTokens) {
      const int row = first + min(thread, tokens - 1);
      x_row[thread] = p.xh + row * p.half_cols;
      y_row[thread] = p.y + row * p.y_stride;
    }
  }
  if (thread == 0) {
    for (uint64_t& barrier : x_full) start_barrier(&barrier);
    for (uint64_t& barrier : weights_full) start_barrier(&barrier);
  }
  __syncthreads();

  // Strips: warp w has 2w and 2w + 1 of the block's, or (paired) w of gate and of up.
  constexpr int kRowStrips = kPaired ? kWideStrips / 2 : kWideStrips;
  const MarlinTiles<Tile> tiles(p.cols);
  const int strip_begin = p.strip_begin() + static_cast<int>(blockIdx.y) * kRowStrips;
  uint8_t* xs = wide_shared + (-shared_address(wide_shared) & 1023);
  uint8_t* ws = xs + Memory::kXStages * Memory::kXBytes;
  // One thread a strip. Of x: one thread for all panels, or (gathered) sixteen for a row.
  if (thread < kWideStrips) {
    const int source = kPaired ? thread % 2 : 0;
    const int number = strip_begin + (kPaired ? thread / 2 : thread);
    strip_from[thread] = p.w[source] + matrix * p.matrix_bytes[source] +
                         min(number, p.strip_end() - 1) * p.strip_bytes;
  }
  __syncwarp();
  const auto fetch_weights = [&](int tile) {
    if (warp > 0 || tile >= tiles.count) return;
    const int bytes = tiles.spans(tile) * Tile::kSpanBytes;
    if (lane == 0) bytes_to_come(&weights_full[tile % 2], kWideStrips * bytes);
    __syncwarp();
    if (lane < kWideStrips) {
      copy_bulk(ws + tile % 2 * Memory::kWeightBytes + lane * kTileBytes,
                strip_from[lane] + tiles.offset(tile), bytes, &weights_full[tile % 2]);
    }
  };
  const auto fetch_x = [&](int half) {
    const int stage = half % Memory::kXStages;
    uint8_t* to = xs + stage * Memory::kXBytes;
    if (p.panel_rows == 0) {
      to += thread % 16 / 8 * kTokens * 128;
#pragma unroll
      for (int j = 0; j < kTokens / 16 && half < 2 * tiles.count; ++j) {
        const int row = thread / 16 + 16 * j;
        copy_async16(to + row * 128 + (thread % 8 ^ row % 8) * 16,
                     x_row[row] + half * 128 + thread % 16 * 8, true);
      }
      commit_async();
    } else if (thread == 0 && half < 2 * tiles.count) {
      bytes_to_come(&x_full[stage], Memory::kXBytes);
#pragma unroll
      for (int panel = 0; panel < 2; ++panel) {
        copy_bulk(to + panel * kTokens * 128,
                  p.xh + ((2 * half + panel) * p.panel_rows + int64_t{blockIdx.x} * kTokens) * 64,
                  kTokens * 128, &x_full[stage]);
      }
    }
  };

  Tile w[2];
  uint32_t a[2][2][8];  // of the columns whose products run, and of the next ones
  const auto load_weights = [&](int tile) {
    wait_phase(&weights_full[tile % 2], tile / 2 % 2);
#pragma unroll
    for (int m = 0; m < 2; ++m) {
      w[m].template load<false>(ws + tile % 2 * Memory::kWeightBytes + (2 * warp + m) * kTileBytes,
                                tiles.spans(tile), lane);
    }
  };
  float sum[2][kTokens / 8][4];  // set by the first product
  fetch_weights(0);
  if (!p.offsets) {
    wait_for_inputs();
    if (thread < kTokens) scale[thread] = p.x_scale[blockIdx.x * kTokens + min(thread, tokens - 1)];
  }
  for (int half = 0; half < Memory::kAhead; ++half) fetch_x(half);
  load_weights(0);
#pragma unroll
  for (int m = 0; m < 2; ++m) w[m].fragment(0, a[0][m]);
  int x_read = 0;
  uint32_t x_phase = 0;
  for (int tile = 0; tile < tiles.count; ++tile) {
    const uint8_t* x = nullptr;
#pragma unroll
    for (int c = 0; c < 8; ++c) {
      if (c % 4 == 0) {
        // Until these columns of x are there, and all are done with what is overwritten now:
        // it was read before the products that are still running.
        if (p.panel_rows > 0) {
          wait_phase(&x_full[x_read], x_phase);
        } else {
          wait_async<Memory::kAhead - 1>();
          show_to_wgmma();
        }
        __syncthreads();
        fetch_x(2 * tile + c / 4 + Memory::kAhead);
        if (c == 0) fetch_weights(tile + 1);
        x = xs + x_read * Memory::kXBytes;
        if (++x_read == Memory::kXStages) x_read = 0, x_phase ^= 1;
      }
      fence_wgmma();
#pragma unroll
      for (int s = 0; s < 2; ++s) {
        const uint64_t b = wgmma_rows(x + c % 4 / 2 * kTokens * 128, c % 2 * 2 + s);
#pragma unroll
        for (int m = 0; m < 2; ++m) {
          wgmma_f16(sum[m], a[c % 2][m] + 4 * s, b, tile > 0 || c > 0 || s > 0);
        }
      }
      commit_wgmma();
      wait_wgmma<1>();  // the other fragments are free
      if (c == 7 && tile + 1 < tiles.count) load_weights(tile + 1);
#pragma unroll
      for (int m = 0; m < 2; ++m) w[m].fragment((c + 1) % 8, a[(c + 1) % 2][m]);
    }
  }
  wait_wgmma<0>();

  write_block<kPaired>(p, sum, scale, y_row, tokens, matrix, strip_begin, warp, lane);
}

template <DType kType, int kTokens>
Status launch_wide(const MarlinProduct& p, cudaStream_t stream) {
  const int pieces =
      p.offsets ? expert_pieces(p.tokens, p.experts, kTokens) : ceil_div(p.tokens, kTokens);
  const dim3 grid(pieces, ceil_div(p.strips(), p.w[1] ? kWideStrips / 2 : kWideStrips));
  constexpr int kShared = WideMemory<kType, kTokens>::kBytes;
  const char* what = "many tokens times marlin weights, wgmma";
  if (p.w[1]) {
    return launch(what, marlin_gemm_wgmma<kType, kTokens, true>, grid, kWideThreads, kShared,
                  stream, p);
  }
  return launch(what, marlin_gemm_wgmma<kType, kTokens, false>, grid, kWideThreads, kShared, stream,
                p);
}

// As many tokens to a block as take the least time: rounds of blocks over the SMs,
// each as long as its tokens and 80 more for decoding (H200: a tile of Q4_K takes 2.05, 2.66,
// 3.85 us at 32, 64, 128 tokens). Pieces of experts are as wide as their average.
template <DType kType>
Status launch_wide_type(const MarlinProduct& p, cudaStream_t stream) {
  constexpr bool kFits128 = WideMemory<kType, 128>::kBytes <= 225 * 1024;
  const int rows = ceil_div(p.strips(), p.w[1] ? kWideStrips / 2 : kWideStrips);
  const auto cost = [&](int tokens) {
    if (p.offsets) return p.tokens > tokens * 5 / 8 * p.experts ? 256 - tokens : 256 + tokens;
    return ceil_div(rows * ceil_div(p.tokens, tokens), sm_count()) * (tokens + 80);
  };
  if constexpr (kFits128) {
    if (cost(128) <= cost(64) && cost(128) <= cost(32)) return launch_wide<kType, 128>(p, stream);
  }
  return cost(64) <= cost(32) ? launch_wide<kType, 64>(p, stream)
                              : launch_wide<kType, 32>(p, stream);
}

}  // namespace ktx::kernels

// GEMM: products of many tokens with marlin weights on Hopper: wgmma, weights decoded in
// registers as its A operand.
//
// A block takes 16 strips (256 rows; or 8 strips of gate and the same of up), kTokens tokens and a
// range of columns; the other ranges are with the other blocks of its cluster (split-K), whose sums
// meet at the end (wide_sums.cuh). Eight warps have two strips each: they decode 32 columns of them
// into A fragments while the products of the 32 before run. Two more bring what they multiply:
// weights 256 columns at a time, activations 128, in F16 (half_rows, for wgmma: the columns of
// every 32 in the order in which marlin fragments have them), in bulk copies (rows of experts,
// which are gathered: cp.async). No barrier of the block stands between the first columns and the
// last.
//
// Roofline: compute. A product of 64 rows, 128 tokens and 16 columns keeps the tensor cores
// busy for 64 cycles; beside it a warp issues about 25 instructions of decoding. L2: 25
// bytes a cycle and SM at 128 tokens. Shared memory: up to six stages of kTokens * 256 bytes,
// two to four of 16 tiles.
#pragma once

#include <atomic>

#include "kernels/cuda/common/cuda_launch.cuh"
#include "kernels/cuda/common/wgmma.cuh"
#include "kernels/cuda/gemm/wide_parts.cuh"
#include "kernels/cuda/gemm/wide_sums.cuh"
#include "kernels/cuda/marlin/marlin_tile.cuh"
#include "kernels/cuda/marlin/marlin_write.cuh"
#include "kernels/cuda/matmul/marlin_products.cuh"

namespace ktx::kernels {

constexpr int kWarpStrips = 2;
constexpr int kWideWarps = kWideStrips / kWarpStrips;  // that multiply
// Registers are given up by a warpgroup: of the last one two warps bring stages, the others end.
constexpr int kWideThreads = 32 * (kWideWarps + 4);

template <DType kType, int kTokens>
struct WideMemory {
  static constexpr int kTileBytes = 4 * MarlinTile<kType>::kSpanBytes;
  static constexpr int kXBytes = kTokens * 256;  // of 128 columns
  static constexpr int kWeightBytes = kWideStrips * kTileBytes;
  static constexpr int kRoom = 222 * 1024;
  // Weights take longer to come: three stages of x at least where that leaves them as many.
  static constexpr int kMost = (kRoom - 3 * kXBytes) / kWeightBytes;
  static constexpr int kWeightStages = kMost < 2 ? 2 : kMost < 4 ? kMost : 4;
  static constexpr int kLeft = (kRoom - kWeightStages * kWeightBytes) / kXBytes;
  static constexpr int kXStages = kLeft < 6 ? kLeft : 6;
  static constexpr bool kFits = kXStages >= 2;
  static constexpr int kStages = kXStages * kXBytes + kWeightStages * kWeightBytes;
  static constexpr int kSums = kWideStrips * kTokens * kWideSumPitch * 4;    // in their place
  static constexpr int kBytes = (kStages > kSums ? kStages : kSums) + 1024;  // to align
};

// What a block multiplies, and the places and barriers by which its warpgroups hand it over.
template <DType kType, int kTokens>
struct WideBlock {
  using Memory = WideMemory<kType, kTokens>;
  const uint16_t* x_row[kTokens];  // where rows are gathered
  float* y_row[kTokens];
  float scale[kTokens];
  const uint8_t* strip_from[kWideStrips];
  uint64_t x_there[Memory::kXStages], x_free[Memory::kXStages];
  uint64_t weights_there[Memory::kWeightStages], weights_free[Memory::kWeightStages];
};

// A warp's work: fills the stages of weights as they become free.
template <DType kType, int kTokens>
__device__ __forceinline__ void bring_weights(const MarlinProduct& p,
                                              WideBlock<kType, kTokens>& own, uint8_t* ws,
                                              int begin, int end) {
  using Tile = MarlinTile<kType>;
  using Memory = WideMemory<kType, kTokens>;
  const MarlinTiles<Tile> tiles(p.cols);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const uint8_t* from = own.strip_from[lane % kWideStrips] + tiles.offset(begin);
  uint8_t* const to = ws + lane * Memory::kTileBytes;
  int stage = 0;
  uint32_t phase = 1;
  for (int tile = begin; tile < end; ++tile, from += Memory::kTileBytes) {
    wait_phase(&own.weights_free[stage], phase);
    const int bytes = tiles.spans(tile) * Tile::kSpanBytes;
    if (lane == 0) bytes_to_come(&own.weights_there[stage], kWideStrips * bytes);
    __syncwarp();
    if (lane < kWideStrips) {
      copy_bulk(to + stage * Memory::kWeightBytes, from, bytes, &own.weights_there[stage]);
    }
    if (++stage == Memory::kWeightStages) stage = 0, phase ^= 1;
  }
}

// The same of activations.
template <DType kType, int kTokens>
__device__ __forceinline__ void bring_x(const MarlinProduct& p, WideBlock<kType, kTokens>& own,
                                        uint8_t* xs, int first_token, int begin, int end) {
  using Memory = WideMemory<kType, kTokens>;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const bool gathered = p.panel_rows == 0;
  wait_for_inputs();
  int stage = 0, before = 0;
  uint32_t phase = 1;
  for (int half = 2 * begin; half < 2 * end; ++half) {
    wait_phase(&own.x_free[stage], phase);
    uint8_t* to = xs + stage * Memory::kXBytes;
    if (gathered) {
      to += lane % 16 / 8 * kTokens * 128;
#pragma unroll 4
      for (int row = lane / 16; row < kTokens; row += 2) {
        copy_async16(to + row * 128 + (lane % 8 ^ row % 8) * 16,
                     own.x_row[row] + half * 128 + lane % 16 * 8, true);
      }
      commit_async();
      if (half > 2 * begin) {
        wait_async<1>();
        show_to_wgmma();
        arrive(&own.x_there[before]);
      }
    } else if (lane == 0) {
      bytes_to_come(&own.x_there[stage], Memory::kXBytes);
#pragma unroll
      for (int panel = 0; panel < 2; ++panel) {
        copy_bulk(to + panel * kTokens * 128,
                  p.xh + (int64_t{2 * half + panel} * p.panel_rows + first_token) * 64,
                  kTokens * 128, &own.x_there[stage]);
      }
    }
    before = stage;
    if (++stage == Memory::kXStages) stage = 0, phase ^= 1;
  }
  if (gathered) {
    wait_async<0>();
    show_to_wgmma();
    arrive(&own.x_there[before]);
  }
}

// `p` with the matrix of the part that this block of rows belongs to; returns the block's number in
// it.
__device__ __forceinline__ int take_part(MarlinProduct& p, const WideParts& parts) {
  const int block = static_cast<int>(blockIdx.y);
  int number = 0;
  for (int i = 1; i < parts.count; ++i) number = block >= parts.first[i] ? i : number;
  if (parts.count == 0) return block;
  const WidePart& part = parts.parts[number];
  p.w[0] = part.w;
  p.row_count = part.row_count;
  p.y = part.y;
  p.y_stride = part.y_stride;
  p.bias[0] = part.bias;
  p.accumulate = part.accumulate;
  return block - parts.first[number];
}

template <DType kType, int kTokens, bool kPaired>
__global__ void __launch_bounds__(kWideThreads, 1)
    marlin_gemm_wgmma(MarlinProduct p, const __grid_constant__ WideParts parts, int splits,
                      bool whole_quads) {
  let_next_kernel_start();
  if (p.offsets) wait_for_inputs();
  using Tile = MarlinTile<kType>;
  using Memory = WideMemory<kType, kTokens>;
  constexpr int kTileBytes = Memory::kTileBytes;
  extern __shared__ uint8_t wide_shared[];
  __shared__ WideBlock<kType, kTokens> own;
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
  const int split = static_cast<int>(blockIdx.x) % splits;
  const int piece_number = static_cast<int>(blockIdx.x) / splits;
  const int row_block = take_part(p, parts);

  // Who is served. Pieces of tokens stand side by side, so that their blocks share weights.
  int matrix = 0, tokens, first_token = piece_number * kTokens;
  if (p.offsets) {
    const ExpertPiece piece = find_expert_piece(p.offsets, p.experts, piece_number, kTokens);
    forget_pairs_of_no_expert<kWideThreads>(p, thread);
    if (piece.expert < 0) return;
    matrix = piece.expert;
    tokens = piece.count;
    if (thread < kTokens) {
      const int pair = p.order[piece.first + min(thread, tokens - 1)];
      own.x_row[thread] = p.xh + pair / p.x_div * p.half_cols;
      own.y_row[thread] = p.y + pair * p.y_stride;
      own.scale[thread] = p.x_scale[pair / p.x_div];
      if (p.places && split == 0 && blockIdx.y == 0 && thread < tokens) {
        p.places[pair] = piece.first + thread;
      }
    }
  } else {
    tokens = min(kTokens, p.tokens - first_token);
    if (thread < kTokens) {
      own.y_row[thread] = p.y + (first_token + min(thread, tokens - 1)) * p.y_stride;
    }
  }
  if (thread == 0) {
    for (int i = 0; i < Memory::kXStages; ++i) {
      start_barrier(&own.x_there[i], p.panel_rows == 0 ? 32 : 1);
      start_barrier(&own.x_free[i], kWideWarps);
    }
    for (int i = 0; i < Memory::kWeightStages; ++i) {
      start_barrier(&own.weights_there[i]);
      start_barrier(&own.weights_free[i], kWideWarps);
    }
  }
  // Strips: in turn of gate and of up where they are paired.
  constexpr int kRowStrips = kPaired ? kWideStrips / 2 : kWideStrips;
  const int strip_begin = p.strip_begin() + row_block * kRowStrips;
  if (thread < kWideStrips) {
    const int source = kPaired ? thread % 2 : 0;
    const int number = strip_begin + (kPaired ? thread / 2 : thread);
    own.strip_from[thread] = p.w[source] + matrix * p.matrix_bytes[source] +
                             min(number, p.strip_end() - 1) * p.strip_bytes;
  }
  __syncthreads();
  const MarlinTiles<Tile> tiles(p.cols);
  const int begin = tiles.count * split / splits, end = tiles.count * (split + 1) / splits;
  uint8_t* xs = wide_shared + (-shared_address(wide_shared) & 1023);
  uint8_t* ws = xs + Memory::kXStages * Memory::kXBytes;

  if (warp >= kWideWarps) {
    give_registers<40>();
    if (warp == kWideWarps) bring_weights<kType, kTokens>(p, own, ws, begin, end);
    if (warp == kWideWarps + 1) bring_x<kType, kTokens>(p, own, xs, first_token, begin, end);
    return;
  }
  get_registers<232>();

  float sum[kWarpStrips][kTokens / 8][4];  // set by the first product
  uint32_t a[2][kWarpStrips][8];  // of the columns whose products run, and of the next ones
  // Of the tile's parts what its next two fragments need is loaded, behind the other loads.
  Tile w[kWarpStrips];
  int weights_stage = 0;
  uint32_t weights_phase = 0;
  const auto decode = [&](int tile, int c) {
    const uint8_t* from =
        ws + weights_stage * Memory::kWeightBytes + warp * kWarpStrips * kTileBytes;
#pragma unroll
    for (int m = 0; m < kWarpStrips; ++m) {
      if (c % 2 == 0) w[m].template load<false>(from + m * kTileBytes, tiles.spans(tile), lane);
      w[m].fragment(c, a[c % 2][m]);
    }
  };
  wait_phase(&own.weights_there[0], 0);
  decode(begin, 0);
  int stage = 0;
  uint32_t phase = 0;
  for (int tile = begin; tile < end; ++tile) {
    const uint8_t* x = nullptr;
    int read = 0;  // the stage whose products may still run
#pragma unroll
    for (int c = 0; c < 8; ++c) {
      if (c % 4 == 0) {
        wait_phase(&own.x_there[stage], phase);
        x = xs + stage * Memory::kXBytes;
        read = stage == 0 ? Memory::kXStages - 1 : stage - 1;
        if (++stage == Memory::kXStages) stage = 0, phase ^= 1;
      }
      fence_wgmma();
#pragma unroll
      for (int s = 0; s < 2; ++s) {
        const uint64_t b = wgmma_rows(x + c % 4 / 2 * kTokens * 128, c % 2 * 2 + s);
#pragma unroll
        for (int m = 0; m < kWarpStrips; ++m) {
          wgmma_f16(sum[m], a[c % 2][m] + 4 * s, b, tile > begin || c > 0 || s > 0);
        }
      }
      commit_wgmma();
      wait_wgmma<1>();  // the other fragments are free
      if (c % 4 == 0 && (tile > begin || c > 0) && lane == 0) arrive(&own.x_free[read]);
      if (c < 7) {
        decode(tile, c + 1);
      } else {
        show_to_wgmma();  // the next copy to this place comes behind these reads
        __syncwarp();
        if (lane == 0) arrive(&own.weights_free[weights_stage]);
        if (tile + 1 == end) break;
        if (++weights_stage == Memory::kWeightStages) weights_stage = 0, weights_phase ^= 1;
        wait_phase(&own.weights_there[weights_stage], weights_phase);
        decode(tile + 1, 0);
      }
    }
  }
  wait_wgmma<0>();

  wait_for_inputs();
  if (!p.offsets && thread < kTokens) {
    own.scale[thread] = p.x_scale[first_token + min(thread, tokens - 1)];
  }
  float* sums = reinterpret_cast<float*>(xs);
  meet_at(1, 32 * kWideWarps);  // all have read what stands there
#pragma unroll
  for (int m = 0; m < kWarpStrips; ++m) {
    store_wide_sums(sum[m], sums, kWarpStrips * warp + m, lane);
  }
  meet_at(1, 32 * kWideWarps);
  const auto out_of = [&](int strip, int quad) {
    return (strip_begin + strip) * 16 + 4 * quad - p.row_begin;
  };
  add_wide_sums<32 * kWideWarps, kTokens, kPaired>(
      sums, tokens, split, splits,
      [&](int token, int strip, int quad) {
        return read_quad(p, whole_quads, out_of(strip, quad), own.y_row[token]);
      },
      [&](int token, int strip, int quad, float4 before, const auto& v) {
        write_quad<kPaired>(p, whole_quads, out_of(strip, quad), before, v, own.scale[token],
                            own.y_row[token], matrix);
      });
}

template <DType kType, int kTokens>
Status launch_wide(const MarlinProduct& p, const WideParts& parts, int splits,
                   cudaStream_t stream) {
  const auto quads = [](int64_t rows, int64_t y_stride, const float* y) {
    return rows % 4 == 0 && y_stride % 4 == 0 && reinterpret_cast<uintptr_t>(y) % 16 == 0;
  };
  bool whole_quads =
      parts.count > 0 || (p.row_begin % 4 == 0 && quads(p.row_count, p.y_stride, p.y));
  for (int i = 0; i < parts.count; ++i) {
    const WidePart& part = parts.parts[i];
    whole_quads = whole_quads && quads(part.row_count, part.y_stride, part.y);
  }
  const int pieces =
      p.offsets ? expert_pieces(p.tokens, p.experts, kTokens) : ceil_div(p.tokens, kTokens);
  const dim3 grid(pieces * splits, wide_row_blocks(p, parts));
  constexpr int kShared = WideMemory<kType, kTokens>::kBytes;
  const auto kernel =
      p.w[1] ? marlin_gemm_wgmma<kType, kTokens, true> : marlin_gemm_wgmma<kType, kTokens, false>;
  return launch_clusters("many tokens times marlin weights, wgmma", kernel, grid, splits,
                         kWideThreads, kShared, stream, p, parts, splits, whole_quads);
}

// Tokens of a block and ranges of columns.
struct WideShape {
  int tokens, splits;
};

// The shape of least time by a count fitted to shapes of Q4_K and Q6_K (H200, us): start and end of
// a block, its tiles, meetings of a cluster; all times the rounds that the clusters take. Experts
// may have one more piece each than their pairs fill. rows: blocks of rows; room(splits): clusters
// at once.
template <class Room>
WideShape wide_shape(const MarlinProduct& p, int rows, int most_tokens, Room room) {
  const int tiles = ceil_div(p.cols, 256);
  WideShape best = {};
  float least = 0;
  for (int tokens = 32; tokens <= most_tokens; tokens *= 2) {
    const int pieces =
        p.offsets ? expert_pieces(p.tokens, p.experts, tokens) : ceil_div(p.tokens, tokens);
    const float start = tokens == 32 ? 3.8f : tokens == 64 ? 6.3f : 10.9f;
    const float tile = tokens == 32 ? 1.8f : tokens == 64 ? 2.1f : 2.7f;
    for (int splits = 1; splits <= kMostSplits && splits <= tiles; ++splits) {
      const float meet = splits == 1 ? 0 : 1 + 0.4f * static_cast<float>(splits);
      const float time = static_cast<float>(ceil_div(pieces * rows, room(splits))) *
                         (start + tile * static_cast<float>(ceil_div(tiles, splits)) + meet);
      if (least == 0 || time < least) least = time, best = {tokens, splits};
    }
  }
  return best;
}

template <DType kType>
Status launch_wide_type(const MarlinProduct& p, const WideParts& parts, cudaStream_t stream) {
  constexpr int kMost = WideMemory<kType, 128>::kFits ? 128 : 64;
  // Clusters of each size that run at once: asked once, all GPUs of a machine being alike.
  static std::atomic<int> rooms[kMostSplits + 1];
  const auto room = [&](int splits) {
    if (rooms[splits] == 0) {
      rooms[splits] = clusters_at_once(marlin_gemm_wgmma<kType, kMost, false>, splits, kWideThreads,
                                       WideMemory<kType, kMost>::kBytes);
    }
    return rooms[splits].load();
  };
  const auto [tokens, splits] = wide_shape(p, wide_row_blocks(p, parts), kMost, room);
  if (tokens == 32) return launch_wide<kType, 32>(p, parts, splits, stream);
  if constexpr (kMost == 128) {
    if (tokens == 128) return launch_wide<kType, 128>(p, parts, splits, stream);
  }
  return launch_wide<kType, 64>(p, parts, splits, stream);
}

}  // namespace ktx::kernels

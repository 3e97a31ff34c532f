// What a block of marlin_gemm_wgmma.cuh multiplies: its shared memory, its items (a piece of tokens
// times 16 strips), and the two warps that bring weights and activations for one item behind
// another.
#pragma once

#include "kernels/cuda/common/cuda_launch.cuh"
#include "kernels/cuda/common/wgmma.cuh"
#include "kernels/cuda/experts/cuda_experts.h"
#include "kernels/cuda/gemm/wide_parts.cuh"
#include "kernels/cuda/gemm/wide_sums.cuh"
#include "kernels/cuda/marlin/marlin_tile.cuh"
#include "kernels/cuda/matmul/marlin_products.cuh"

namespace ktx::kernels {

constexpr int kMostGathered = 64;  // tokens of an item of experts: more are slower (H200)

// The warps of a block. The last four give registers to the others; one of these four brings
// weights, and one or kGatherWarps of them bring activations.
constexpr int kGatherWarps = 3, kWarpStrips = 2, kWideWarps = kWideStrips / kWarpStrips;
constexpr int kWideThreads = 32 * (kWideWarps + 4), kGiven = 72, kTaken = 216;

template <DType kType, int kTokens>
struct WideMemory {
  static constexpr int kTileBytes = 4 * MarlinTile<kType>::kSpanBytes;
  static constexpr int kXBytes = kTokens * 256;  // of 128 columns
  static constexpr int kWeightBytes = kWideStrips * kTileBytes;
  // Sums that pass through shared memory have a place of their own beside the stages, for so many
  // tokens at a time; of a cluster, and of 128 tokens, the place of the stages.
  static constexpr bool kBeside = kTokens <= 64;
  static constexpr int kPassTokens = kBeside ? 16 : kTokens;
  static constexpr int kPassBytes = kBeside ? kWideStrips * kPassTokens * kWideSumPitch * 4 : 0;
  static constexpr int kSums = kWideStrips * kTokens * kWideSumPitch * 4;
  static constexpr int kRoom = 218 * 1024 - kPassBytes;
  // Weights take longer to come: five stages of x at least (of 128 tokens three) where that leaves
  // them as many.
  static constexpr int kMost = (kRoom - (kBeside ? 5 : 3) * kXBytes) / kWeightBytes;
  static constexpr int kWeightStages = kMost < 2 ? 2 : kMost < 4 ? kMost : 4;
  static constexpr int kLeft = (kRoom - kWeightStages * kWeightBytes) / kXBytes;
  static constexpr int kXStages = kLeft < 6 ? kLeft : 6;
  static constexpr bool kFits = kXStages >= 2;
  static constexpr int kStaged = kXStages * kXBytes + kWeightStages * kWeightBytes;
  static constexpr int kStages = kStaged > kSums ? kStaged : kSums;
  static constexpr int kBytes = kStages + kPassBytes + 1024;  // to align
};

// The places and barriers by which the warps of a block hand over their work.
template <DType kType, int kTokens>
struct WideBlock {
  using Memory = WideMemory<kType, kTokens>;
  float* y_row[2][kTokens];  // of this item, and of the one before, whose sums may still leave
  float scale[2][kTokens];
  uint64_t x_there[Memory::kXStages], x_free[Memory::kXStages];
  uint64_t weights_there[Memory::kWeightStages], weights_free[Memory::kWeightStages];
  int pieces_before[kCudaMaxExperts + 1];  // of each expert, and all
};

// The number of a stage in a ring, and the phase of its barriers.
template <int kStages>
struct WideRing {
  int stage = 0;
  uint32_t phase = 0;
  __device__ __forceinline__ void next() {
    if (++stage == kStages) stage = 0, phase ^= 1;
  }
  __device__ __forceinline__ int before() const { return stage == 0 ? kStages - 1 : stage - 1; }
};

// A piece of at most kTokens tokens, or of pairs of one expert, from `first` on, and a block of
// rows.
struct WideItem {
  int matrix = 0, first = 0, tokens = 0, row_block = 0;
};

// The items of a launch; a block has number blockIdx.x / splits, and where it loops every
// (gridDim.x / splits)-th behind it. Pieces stand side by side, so that their blocks share weights.
struct WideItems {
  int pieces, row_blocks;
  const int* before;  // pieces_before, of experts

  __device__ int count() const { return pieces * row_blocks; }

  template <int kTokens>
  __device__ __forceinline__ WideItem at(const MarlinProduct& p, int number) const {
    WideItem item;
    item.row_block = number / pieces;
    const int piece = number - item.row_block * pieces;
    item.first = piece * kTokens;
    item.tokens = min(kTokens, p.tokens - item.first);
    if (!p.offsets) return item;
    int end = p.experts;  // the last expert with before[expert] <= piece
    while (end - item.matrix > 1) {
      const int middle = (item.matrix + end) / 2;
      (before[middle] <= piece ? item.matrix : end) = middle;
    }
    const int first = (piece - before[item.matrix]) * kTokens;
    item.first = p.offsets[item.matrix] + first;
    item.tokens = min(kTokens, p.offsets[item.matrix + 1] - item.first);
    return item;
  }
};

// Fills before[experts + 1]; all threads take part.
__device__ __forceinline__ void count_pieces(const MarlinProduct& p, int most, int* before) {
  __shared__ int warp_total[32];
  const int threads = static_cast<int>(blockDim.x), thread = static_cast<int>(threadIdx.x);
  const int lane = thread % 32, share = (p.experts + threads - 1) / threads;
  const auto pieces_of = [&](int e) { return (p.offsets[e + 1] - p.offsets[e] + most - 1) / most; };
  const int begin = min(p.experts, thread * share), end = min(p.experts, begin + share);
  int own = 0;
  for (int e = begin; e < end; ++e) own += pieces_of(e);
  int sum = own;  // inclusive, of the warp
  for (int o = 1; o < 32; o *= 2) {
    const int below = __shfl_up_sync(~0u, sum, o);
    if (lane >= o) sum += below;
  }
  if (lane == 31) warp_total[thread / 32] = sum;
  __syncthreads();
  sum -= own;
  for (int w = 0; w < thread / 32; ++w) sum += warp_total[w];
  for (int e = begin; e < end; ++e) {
    before[e] = sum;
    sum += pieces_of(e);
  }
  if (end == p.experts && begin < end) before[p.experts] = sum;
  __syncthreads();
}

// `p` with the matrix of the part that this block of rows belongs to; returns the block's number in
// it.
__device__ __forceinline__ int take_part(MarlinProduct& p, const WideParts& parts, int block) {
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

// A warp's work for an item: fills the stages of weights as they become free. Strips are in turn of
// gate and of up where they are paired.
template <DType kType, int kTokens, bool kPaired, class Ring>
__device__ __forceinline__ void bring_weights(const MarlinProduct& p, const WideItem& item,
                                              WideBlock<kType, kTokens>& own, uint8_t* ws,
                                              Ring& ring, int begin, int end) {
  using Tile = MarlinTile<kType>;
  using Memory = WideMemory<kType, kTokens>;
  const MarlinTiles<Tile> tiles(p.cols);
  const int lane = static_cast<int>(threadIdx.x) % 32, strip = lane % kWideStrips;
  const int source = kPaired ? strip % 2 : 0;
  const int number = p.strip_begin() + (kPaired ? item.row_block * (kWideStrips / 2) + strip / 2
                                                : item.row_block * kWideStrips + strip);
  const uint8_t* w = source ? p.w[1] : p.w[0];
  const int64_t matrix_bytes = source ? p.matrix_bytes[1] : p.matrix_bytes[0];
  const uint8_t* from = w + item.matrix * matrix_bytes +
                        min(number, p.strip_end() - 1) * p.strip_bytes + tiles.offset(begin);
  uint8_t* const to = ws + lane * Memory::kTileBytes;
  for (int tile = begin; tile < end; ++tile, from += Memory::kTileBytes) {
    wait_phase(&own.weights_free[ring.stage], ring.phase ^ 1);
    const int bytes = tiles.spans(tile) * Tile::kSpanBytes;
    uint64_t* there = &own.weights_there[ring.stage];
    if (lane == 0) bytes_to_come(there, kWideStrips * bytes);
    __syncwarp();
    if (lane < kWideStrips) copy_bulk(to + ring.stage * Memory::kWeightBytes, from, bytes, there);
    ring.next();
  }
}

// The same of activations that stand in panels.
template <DType kType, int kTokens, class Ring>
__device__ __forceinline__ void bring_panels(const MarlinProduct& p, const WideItem& item,
                                             WideBlock<kType, kTokens>& own, uint8_t* xs,
                                             Ring& ring, int begin, int end) {
  using Memory = WideMemory<kType, kTokens>;
  if (threadIdx.x % 32 != 0) return;
  for (int half = 2 * begin; half < 2 * end; ++half) {
    wait_phase(&own.x_free[ring.stage], ring.phase ^ 1);
    uint8_t* to = xs + ring.stage * Memory::kXBytes;
    bytes_to_come(&own.x_there[ring.stage], Memory::kXBytes);
#pragma unroll
    for (int panel = 0; panel < 2; ++panel) {
      copy_bulk(to + panel * kTokens * 128,
                p.xh + (int64_t{2 * half + panel} * p.panel_rows + item.first) * 64, kTokens * 128,
                &own.x_there[ring.stage]);
    }
    ring.next();
  }
}

// The same of rows of experts, which are gathered, by kGatherWarps warps: warp `number` has two of
// every 2 * kGatherWarps rows.
template <DType kType, int kTokens, class Ring>
__device__ __forceinline__ void gather_rows(const MarlinProduct& p, const WideItem& item,
                                            WideBlock<kType, kTokens>& own, uint8_t* xs, Ring& ring,
                                            int number, int begin, int end) {
  using Memory = WideMemory<kType, kTokens>;
  constexpr int kStep = 2 * kGatherWarps, kRows = (kTokens + kStep - 1) / kStep;
  const int lane = static_cast<int>(threadIdx.x) % 32, first = 2 * number + lane / 16;
  uint32_t from[kRows];  // halves of xh, by eights
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    const int place = item.first + min(first + i * kStep, item.tokens - 1);
    from[i] = static_cast<uint32_t>(p.order[place] / p.x_div * (p.half_cols / 8));
  }
  const uint16_t* x = p.xh + begin * 256 + lane % 16 * 8;
  for (int half = 2 * begin; half < 2 * end; ++half, x += 128) {
    wait_phase(&own.x_free[ring.stage], ring.phase ^ 1);
    uint8_t* to = xs + ring.stage * Memory::kXBytes + lane % 16 / 8 * kTokens * 128;
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const int row = first + i * kStep;
      if (row >= item.tokens) break;
      copy_async16(to + row * 128 + (lane % 8 ^ row % 8) * 16, x + int64_t{from[i]} * 8, true);
    }
    arrive_when_copied(&own.x_there[ring.stage]);
    ring.next();
  }
}

}  // namespace ktx::kernels

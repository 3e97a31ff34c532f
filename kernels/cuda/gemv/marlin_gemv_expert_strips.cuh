// GEMV of the experts of few tokens where they are small: the work of Choices and Sum
// (marlin_gemv.h) whose strips stand all at once for a token, a block a strip
// (marlin_gemv_launch.cuh). Others: marlin_gemv_experts.cuh. Row y of the grid: a token.
//
//   marlin_gemv_choice_strips  a strip of gate and up of one choice: the last warp of each block
//                              chooses while the others convert x, then every warp asks for its
//                              tiles in two bulk copies
//   marlin_gemv_sum_strips     a strip of the sum, a warp a tile of one expert: it finds its expert
//                              itself, converts its own x, and the block meets once, at its end
//
// Strips and tiles of a shared expert come last. Their weights are asked for before the kernel
// ahead has ended.
//
//   Qwen3-30B-A3B: 8 choices of 768 / 16 strips, 8 tiles each; sum of 2048 / 16 strips, 8 * 3 tiles
//
// Per row the sums of the warps are added in rising order. Neither has room for the bias of
// experts, nor for columns beyond what a block holds.
#pragma once

#include "kernels/cuda/common/bulk_copy.cuh"
#include "kernels/cuda/experts/router_choice.cuh"
#include "kernels/cuda/gemv/gemv_tile.cuh"
#include "kernels/cuda/gemv/marlin_gemv_output.cuh"
#include "kernels/cuda/gemv/marlin_gemv_shape.cuh"
#include "kernels/rows/glu.h"

namespace ktx::kernels {

// kOwn: experts of a lane at most.
template <DType kType, int kOwn>
__global__ void __launch_bounds__(kOneThreads, kChoiceBlocks)
    marlin_gemv_choice_strips(const __grid_constant__ OneProduct p) {
#if __CUDA_ARCH__ >= 900
  extern __shared__ uint4 one_shared[];
  __shared__ uint64_t barriers[kOneWarps];
  __shared__ float sums[2][kOneWarps][16];
  __shared__ int chosen[kCudaMaxTopK];
  constexpr int kTileBytes = kMarlinTileBytes<kType>, kChooser = kOneWarps - 1;
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
  const OneRows& rows = p.rows[0];
  const int top_k = p.router.attrs.top_k, block = static_cast<int>(blockIdx.x);
  const int k = block / rows.strips(), strip = block - k * rows.strips();
  const int token = static_cast<int>(blockIdx.y), first_choice = token * top_k;
  const bool is_shared = k == top_k;
  const MarlinTiles<MarlinTile<kType>> tiles(p.cols);
  const int begin = tiles.count * warp / kOneWarps;
  const int count = tiles.count * (warp + 1) / kOneWarps - begin;
  // Shared memory: both strips, x, the choice.
  uint8_t* memory = reinterpret_cast<uint8_t*>(one_shared);
  uint8_t* own = memory + 2 * begin * kTileBytes;
  memory += 2 * tiles.count * kTileBytes;
  const OneX x(memory, tiles.count);
  float* scratch = reinterpret_cast<float*>(memory + OneX::bytes_of(tiles.count));
  if (lane == 0) {
    barrier_init(barriers + warp, 2);
    barrier_init_done();
  }
  const auto ask = [&](const uint8_t* const(&w)[2], int matrix) {
    if (lane != 0 || count == 0) return;
    const int64_t at = strip * rows.strip_bytes + begin * kTileBytes;
    const int bytes =
        static_cast<int>(min(rows.strip_bytes - begin * kTileBytes, int64_t{count * kTileBytes}));
#pragma unroll
    for (int m = 0; m < 2; ++m) {
      bulk_copy_once(own + m * count * kTileBytes, w[m] + matrix * rows.matrix_bytes + at, bytes,
                     barriers + warp);
    }
  };
  if (is_shared) ask(p.shared.w, 0);
  wait_for_inputs();
  if (block != 0) let_next_kernel_start();
  const float* from = p.x + token * p.x_stride;
  RouterPick pick = {};
  if (warp != kChooser) {
    x.load<false>(from, nullptr, p.cols, tiles.count, 0, warp, kChooser, lane);
  } else if (!is_shared) {
    pick = pick_experts<kOwn>(p.router, token, scratch, lane);
    if (lane < top_k) chosen[lane] = matrix_of(p.router, pick.id);
  } else if (strip == 0 && p.shared.gate) {
    const float score = row_score(p.shared.gate, from, p.cols, lane);
    if (lane == 0) p.shared.score[token * p.shared.score_stride] = score;
  }
  __syncthreads();
  const int matrix = is_shared ? 0 : chosen[k];  // -1: another device's
  if (!is_shared && matrix >= 0) ask(rows.w, matrix);
  if (block == 0 && warp == kChooser) {
    // While the tiles come. The next kernel may read the choice as soon as it starts: the block
    // that writes it is the last to let it.
    const RouterChoice choice = weigh(p.router, pick, lane);
    if (lane < top_k) store_choice(p.router, choice, first_choice + lane);
    __threadfence();
    __syncwarp();
    let_next_kernel_start();
  }
  if (matrix < 0) return;
  if (count > 0) barrier_wait(barriers + warp, 0);
  float total[2] = {};
#pragma unroll 1
  for (int m = 0; m < 2; ++m) {
#pragma unroll 1
    for (int i = 0; i < count; ++i) {
      OneTile<kType> tile;
      tile.load(own + (m * count + i) * kTileBytes, tiles.spans(begin + i), x, begin + i, lane);
      tile.add(lane, total);
    }
    put_sums(total, sums[m][warp], lane);
  }
  __syncthreads();
  const int n = strip * 16 + thread;
  if (thread >= 16 || n >= rows.row_count) return;
  float v[2] = {};
#pragma unroll
  for (int w = 0; w < kOneWarps; ++w) v[0] += sums[0][w][thread], v[1] += sums[1][w][thread];
  float* const y = is_shared ? p.shared.h + token * p.shared.h_stride
                             : rows.y + (first_choice + k) * rows.y_stride;
  y[n] = row_glu(rows.glu, v[0], v[1]);
#endif
}

template <DType kType>
__global__ void __launch_bounds__(32 * kSumWarps, 1)
    marlin_gemv_sum_strips(const __grid_constant__ OneProduct p) {
#if __CUDA_ARCH__ >= 900
  extern __shared__ uint4 one_shared[];
  __shared__ uint64_t barriers[kSumWarps];
  __shared__ float sums[kSumWarps][16];
  constexpr int kTileBytes = kMarlinTileBytes<kType>;
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
  const int warps = static_cast<int>(blockDim.x) / 32, strip = static_cast<int>(blockIdx.x);
  const OneRows& rows = p.rows[0];
  const MarlinTiles<MarlinTile<kType>> tiles(p.cols);
  const int top_k = p.router.attrs.top_k, source = warp / tiles.count;
  const int tile = warp - source * tiles.count;
  const int token = static_cast<int>(blockIdx.y), first_choice = token * top_k;
  // Shared memory: tiles, x of each.
  uint8_t* memory = reinterpret_cast<uint8_t*>(one_shared);
  uint8_t* own = memory + warp * kTileBytes;
  const OneX x(memory + warps * kTileBytes, warps);
  let_next_kernel_start();
  if (lane == 0) {
    barrier_init(barriers + warp, 1);
    barrier_init_done();
  }
  if (!p.ids_ahead) wait_for_inputs();
  // Past L1, where a line may be older than the kernel ahead.
  const int id = lane < top_k ? __ldcg(p.router.ids + first_choice + lane) : INT_MAX;
  const float weights = lane < top_k ? __ldcg(p.router.weights + first_choice + lane) : 0;
  int before = 0;  // choices of lower experts
  for (int o = 0; o < top_k; ++o) {
    const int other = __shfl_sync(~0u, id, o);
    before += other < id || (other == id && o < lane);
  }
  const unsigned mine = __ballot_sync(~0u, lane < top_k && before == source);
  const bool is_shared = source == top_k;
  const int choice = max(__ffs(static_cast<int>(mine)) - 1, 0);
  // -1: another device's, or none
  const int expert = is_shared ? 0 : __shfl_sync(~0u, id, choice);
  float weight = __shfl_sync(~0u, weights, choice);
  const uint8_t* const w = is_shared ? p.shared.w[0] : rows.w[0];
  if (lane == 0 && expert >= 0) {
    const int64_t at = strip * rows.strip_bytes + tile * kTileBytes;
    bulk_copy_once(own, w + expert * rows.matrix_bytes + at, tiles.spans(tile) * (kTileBytes / 4),
                   barriers + warp);
  }
  if (p.ids_ahead) wait_for_inputs();
  if (is_shared) weight = shared_weight(p.shared, token);
  const int n = strip * 16 + thread;
  const bool writes = thread < 16 && n < rows.row_count;
  float* const y = rows.y + token * rows.y_stride + n;
  const float y_before = writes && rows.accumulate ? *y : 0;
  const int k = 256 * tile + 8 * lane;
  float4 v[2] = {};
  if (k < p.cols && expert >= 0) {
    const float* row = is_shared ? p.shared.h + token * p.shared.h_stride
                                 : p.x + (first_choice + choice) * p.x_stride;
    const auto* from = reinterpret_cast<const float4*>(row + k);
    v[0] = from[0], v[1] = from[1];
  }
  x.put(warp, v[0], v[1], lane);
  __syncwarp();
  float total[2] = {};
  if (expert >= 0) {
    barrier_wait(barriers + warp, 0);
    OneTile<kType> weighed;
    weighed.load(own, tiles.spans(tile), x, warp, lane);
    weighed.add(lane, total);
    total[0] *= weight, total[1] *= weight;
  }
  put_sums(total, sums[warp], lane);
  __syncthreads();
  if (!writes) return;
  float sum = 0;
#pragma unroll 8
  for (int w = 0; w < warps; ++w) sum += sums[w][thread];
  *y = sum + y_before;
#endif
}

}  // namespace ktx::kernels

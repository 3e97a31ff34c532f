// GEMV of experts: the work of Pairs, Choices and Sum (marlin_gemv.h), whose weights are not known
// before the kernel ahead has ended, or was about to.
//
// Blocks, rings, arithmetic and roofline as in marlin_gemv_dense.cuh. A block has some strips of 16
// rows (pairs of strips of gate and up; of the sum a strip of each expert), which stand in a table:
// where a strip begins, the choice says.
#pragma once

#include "kernels/cuda/common/cuda_launch.cuh"
#include "kernels/cuda/experts/router_choice.cuh"
#include "kernels/cuda/gemv/gemv_tile.cuh"
#include "kernels/cuda/gemv/marlin_gemv_output.cuh"
#include "kernels/cuda/gemv/marlin_gemv_shape.cuh"
#include "kernels/cuda/marlin/marlin_stream.cuh"
#include "kernels/rows/glu.h"

namespace ktx::kernels {

template <DType kType, OneWork kWork>
__device__ __forceinline__ void experts_block(const OneProduct& p, const OneShape& shape,
                                              const OneBlock& block, int stages) {
  extern __shared__ uint4 one_shared[];
  __shared__ uint64_t barriers[kOneWarps][kMostStages];
  // For OneWork::Sum: `rising` has the choices in the order of their experts, the shared one last.
  __shared__ int found, chosen[kCudaMaxTopK + 1], rising[kCudaMaxTopK + 1];
  __shared__ float chosen_weight[kCudaMaxTopK + 1];
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
  const OneRows& rows = p.rows[block.part];
  const int top_k = p.router.attrs.top_k, strip0 = rows.strip_begin();
  // Whether the weights are known before the kernel ahead has ended.
  const bool ahead = kWork == OneWork::Sum && p.ids_ahead;
  const int x_rows = kWork == OneWork::Sum ? block.sources : 1;
  // Shared memory: the stages of the warps, x, sums of the warps, the strips' places.
  uint8_t* memory = reinterpret_cast<uint8_t*>(one_shared);
  uint8_t* ring = memory + warp * shape.ring_bytes;
  memory += kOneWarps * shape.ring_bytes;
  const OneX x(memory, x_rows * block.tiles);
  memory += OneX::bytes_of(x_rows * block.tiles);
  float* sums = reinterpret_cast<float*>(memory);  // [strip][warp][row]
  const uint8_t** places =
      reinterpret_cast<const uint8_t**>(sums + shape.most_strips * kOneWarps * 16);

  if constexpr (kWork != OneWork::Choices) let_next_kernel_start();
  // What this block computes: its matrix, and its rows of x and y.
  int matrix = static_cast<int>(blockIdx.y), x_warps = kOneWarps;
  RouterPick pick = {};                                           // Choices: of the last warp
  const int token = matrix;                                       // Choices, Sum
  const int first_choice = static_cast<int>(blockIdx.y) * top_k;  // of the token
  const float* from = p.x + (kWork == OneWork::Sum ? first_choice : token) * p.x_stride;
  float* y = rows.y + (kWork == OneWork::Choices ? first_choice : token) * rows.y_stride;
  if (!ahead) wait_for_inputs();
  if constexpr (kWork == OneWork::Pairs) {
    const int place = matrix;
    if (thread == 0) found = -1;
    __syncthreads();
    for (int e = thread; e < p.experts; e += kOneThreads) {
      if (p.offsets[e] <= place && place < p.offsets[e + 1]) found = e;
    }
    __syncthreads();
    matrix = found;
    const int pair = p.order[place];
    if (p.places && blockIdx.x == 0 && thread == 0) p.places[pair] = matrix < 0 ? -1 : place;
    if (matrix < 0) return;
    from = p.x + pair / p.x_div * p.x_stride;
    y = rows.y + pair * rows.y_stride;
  } else if constexpr (kWork == OneWork::Choices) {
    // The last warp chooses, the others take x.
    x_warps = kOneWarps - 1;
    if (blockIdx.x != 0) let_next_kernel_start();
    if (warp == x_warps) {
      pick = pick_experts<8>(p.router, token, sums, lane);
      if (lane < top_k) chosen[lane] = max(matrix_of(p.router, pick.id), 0);
      if (lane == 0) chosen[top_k] = 0;
    }
  } else if (kWork == OneWork::Sum && warp == 0) {
    // Past L1, where a line may be older than the kernel ahead.
    const int id = lane < top_k ? __ldcg(p.router.ids + first_choice + lane) : INT_MAX;
    if (lane < top_k) {
      chosen[lane] = max(id, 0);
      chosen_weight[lane] = __ldcg(p.router.weights + first_choice + lane);
    }
    int before = 0;
    for (int o = 0; o < top_k; ++o) {
      const int other = __shfl_sync(~0u, id, o);
      before += other < id || (other == id && o < lane);
    }
    if (lane < top_k) rising[before] = lane;
    if (lane == 0) chosen[top_k] = 0, rising[top_k] = top_k;
  }
  if constexpr (kWork == OneWork::Choices) {
    if (warp < x_warps) x.load<false>(from, nullptr, p.cols, block.tiles, 0, warp, x_warps, lane);
  }
  if constexpr (kWork == OneWork::Choices || kWork == OneWork::Sum) __syncthreads();
  if (thread < block.strips) {  // at most 32
    const int source = block.sources == 1 ? 0 : thread % block.sources;
    const int unit = block.first + (block.sources == 1 ? thread : thread / block.sources);
    int strip = unit, of = matrix, choice = -1;
    if constexpr (kWork == OneWork::Choices) {
      strip = unit % rows.strips(), choice = unit / rows.strips();
    }
    if constexpr (kWork == OneWork::Sum) choice = rising[block.first_source + source];
    if (choice >= 0) of = chosen[choice];
    const int m = kWork != OneWork::Sum && source ? 1 : 0;
    const uint8_t* w = kWork != OneWork::Pairs && choice == top_k ? p.shared.w[m] : rows.w[m];
    places[thread] = w + of * rows.matrix_bytes + (strip0 + strip) * rows.strip_bytes;
  }
  __syncthreads();

  const int items = block.strips * block.tiles;
  const int begin = items * warp / kOneWarps, end = items * (warp + 1) / kOneWarps;
  int current = begin / block.tiles, tile = begin - current * block.tiles;  // strip and tile in it
  const auto place_of = [&](int strip) { return places[strip]; };
  MarlinStream<kType, decltype(place_of)> stream(p.cols, place_of, current, tile, end - begin, ring,
                                                 stages, barriers[warp], lane);
  stream.start(lane);
  if (kWork == OneWork::Choices && blockIdx.x == 0 && warp == x_warps) {
    // While the first tiles come. The next kernel may read the choice as soon as it starts: the
    // block that writes it is the last to let it.
    const RouterChoice choice = weigh(p.router, pick, lane);
    if (lane < top_k) store_choice(p.router, choice, first_choice + lane);
    __threadfence();
    __syncwarp();
    let_next_kernel_start();
    if (p.shared.w[0] && p.shared.gate) {
      const float score = row_score(p.shared.gate, from, p.cols, lane);
      if (lane == 0) p.shared.score[token * p.shared.score_stride] = score;
    }
  }
  for (int i = thread; i < block.strips * kOneWarps * 16; i += kOneThreads) sums[i] = 0;
  if (ahead) wait_for_inputs();
  // This thread's output, and what is added to it.
  const int unit = thread / 16, row = thread % 16;
  int strip = block.first + unit;
  int choice = 0;
  if constexpr (kWork == OneWork::Choices) {
    choice = strip / rows.strips();
    y = choice == top_k ? p.shared.h + token * p.shared.h_stride : y + choice * rows.y_stride;
    strip %= rows.strips();
  }
  const int n = (strip0 + strip) * 16 + row - rows.row_begin;
  const bool writes = unit < block.units && n >= 0 && n < rows.row_count;
  float before = 0;
  if (writes && rows.accumulate) before = y[n];
  float bias[2] = {};
  if (kWork != OneWork::Sum && writes && rows.bias[0]) {
    const int expert = kWork == OneWork::Choices ? chosen[choice] : matrix;
    const int64_t at = expert * rows.bias_stride + n;
    bias[0] = rows.bias[0][at];
    if (rows.bias[1]) bias[1] = rows.bias[1][at];
    if (!rows.w[1]) before += bias[0];
  }
  if constexpr (kWork == OneWork::Sum) {  // some warps a row
    const int of_row = x_rows < kOneWarps ? kOneWarps / x_rows : 1;
    if (p.shared.w[0] && thread == 0) chosen_weight[top_k] = shared_weight(p.shared, token);
    for (int k = warp / of_row; k < x_rows; k += kOneWarps / of_row) {
      const int of = rising[block.first_source + k];
      const float* row =
          of == top_k ? p.shared.h + token * p.shared.h_stride : from + of * p.x_stride;
      x.load<false>(row, nullptr, p.cols, block.tiles, k * block.tiles, warp % of_row, of_row,
                    lane);
    }
  } else if constexpr (kWork != OneWork::Choices) {
    x.load<false>(from, nullptr, p.cols, block.tiles, 0, warp, kOneWarps, lane);
  }
  __syncthreads();

  float total[2] = {};
  int x_row = kWork == OneWork::Sum ? current % x_rows : 0;
  for (int item = begin; item < end; ++item) {
    const uint8_t* bytes = stream.wait();
    OneTile<kType> own;
    own.load(bytes, stream.tiles.spans(tile), x, x_row * block.tiles + tile, lane);
    stream.done(lane);
    own.add(lane, total);
    if (++tile < block.tiles && item + 1 < end) continue;
    put_sums(total, sums + (current * kOneWarps + warp) * 16, lane);
    ++current;
    tile = 0;
    if (++x_row == x_rows) x_row = 0;
  }
  __syncthreads();
  if constexpr (kWork == OneWork::Sum) {
    // Each strip's sum over the warps (0 where one had no tile of it) replaces the first warp's.
    for (int i = thread; i < block.strips * 16; i += kOneThreads) {
      float* own = sums + i / 16 * kOneWarps * 16 + i % 16;
      float v = 0;
      for (int w = 0; w < kOneWarps; ++w) v += own[16 * w];
      *own = v;
    }
    __syncthreads();
    if (shape.cluster > 1) meet_cluster();
    if (writes && block.first_source == unit % shape.cluster * block.sources) {
      float v = 0;
      for (int i = 0; i < p.choices(); ++i) {
        const int strip_of = unit * block.sources + i % block.sources;
        float part = load_of_rank(sums + strip_of * kOneWarps * 16 + row, i / block.sources);
        if (rows.bias[0]) part += rows.bias[0][chosen[rising[i]] * rows.bias_stride + n];
        // What was not computed is not read: it may be NaN.
        const float weight = chosen_weight[rising[i]];
        if (weight != 0) v += weight * part;
      }
      y[n] = v + before;
    }
    if (shape.cluster > 1) wait_for_cluster();  // no block exits while its sums are read
    return;
  }
  if (!writes) return;
  const auto strip_sum = [&](int j) {  // warps that had no tile of it have 0
    float v = 0;
    for (int w = 0; w < kOneWarps; ++w) v += sums[(j * kOneWarps + w) * 16 + row];
    return v;
  };
  const float v = rows.w[1] ? row_glu(rows.glu, strip_sum(2 * unit) + bias[0],
                                      strip_sum(2 * unit + 1) + bias[1])
                            : strip_sum(unit);
  y[n] = v + before;
}

// A kernel for each kind of work, so that none has to run past the code of the others.
template <DType kType, OneWork kWork>
__global__ void __launch_bounds__(kOneThreads, kOneBlocks)
    marlin_gemv_experts(const __grid_constant__ OneProduct p,
                        const __grid_constant__ OneShape shape) {
  experts_block<kType, kWork>(p, shape, OneBlock::of<kWork>(p, shape), shape.stages[0]);
}

}  // namespace ktx::kernels

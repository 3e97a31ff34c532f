// GEMV of dense weights of any number of rows: the work of Heads (marlin_gemv.h) that is not one
// strip a block (marlin_gemv_strips.cuh), as gate and up, down, and an output matrix.
//
// A block has some strips of 16 rows (pairs of strips of gate and up) and all columns. Its tiles
// stand in a row, and a warp takes an eighth of them, whatever strips they belong to, through its
// own ring of shared memory (marlin_stream.cuh). The first are asked for before the wait for the
// kernel ahead, so the memory works while that one drains. Per strip the sums of the warps are
// added in rising order.
//
// There is a kernel for each of norm and none, pairs and none: one for all of them has twice the
// code, and a token waits for its instructions (README.md).
//
// The arithmetic: gemv_tile.cuh. Only x is rounded, to whole numbers of 16 bits; all else is exact
// or F32.
//
// Roofline: bytes of the weights / memory bandwidth. About 1.2 instructions a weight and lane
// for Q4_K, half of them for the integer units, which take two cycles. SM occupancy: two blocks.
#pragma once

#include "kernels/cuda/gemv/gemv_tile.cuh"
#include "kernels/cuda/gemv/marlin_gemv_output.cuh"
#include "kernels/cuda/gemv/marlin_gemv_shape.cuh"
#include "kernels/cuda/marlin/marlin_stream.cuh"
#include "kernels/rows/glu.h"

namespace ktx::kernels {

template <DType kType, bool kPaired, bool kNorm>
__device__ __forceinline__ void dense_block(const OneProduct& p, const OneShape& shape,
                                            const OneBlock& block, int stages) {
  extern __shared__ uint4 one_shared[];
  __shared__ uint64_t barriers[kOneWarps][kMostStages];
  __shared__ float warp_squares[kOneWarps];
  constexpr int kSources = kPaired ? 2 : 1;
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
  const OneRows& rows = p.rows[block.part];
  const int strips = block.units * kSources;
  // Shared memory: the stages of the warps, x, sums of the warps.
  uint8_t* memory = reinterpret_cast<uint8_t*>(one_shared);
  uint8_t* ring = memory + warp * shape.ring_bytes;
  memory += kOneWarps * shape.ring_bytes;
  const OneX x(memory, block.tiles);
  float* sums =
      reinterpret_cast<float*>(memory + OneX::bytes_of(block.tiles));  // [strip][warp][row]

  const int items = strips * block.tiles;
  const int begin = items * warp / kOneWarps, end = items * (warp + 1) / kOneWarps;
  int current = begin / block.tiles, tile = begin - current * block.tiles;  // strip and tile in it
  const int64_t base =
      blockIdx.y * rows.matrix_bytes + (rows.strip_begin() + block.first) * rows.strip_bytes;
  const auto place_of = [&](int strip) {
    return rows.w[kPaired ? strip % 2 : 0] + base + strip / kSources * rows.strip_bytes;
  };
  MarlinStream<kType, decltype(place_of)> stream(p.cols, place_of, current, tile, end - begin, ring,
                                                 stages, barriers[warp], lane);
  stream.start(lane);
  if constexpr (kNorm) {
    for (int k = 32 * thread; k < p.cols; k += 32 * kOneThreads) prefetch_l2(p.norm + k);
  }
  for (int i = thread; i < strips * kOneWarps * 16; i += kOneThreads) sums[i] = 0;
  wait_for_inputs();
  const int unit = thread / 16, row = thread % 16;
  const DenseOutput<kPaired> output(rows, unit < block.units, block.first + unit, row);
  const float* from = p.x + blockIdx.y * p.x_stride;
  if constexpr (kNorm) {
    const float squares =
        warp_sum(x.load<true>(from, p.norm, p.cols, block.tiles, 0, warp, kOneWarps, lane));
    if (lane == 0) warp_squares[warp] = squares;
  } else {
    x.load<false, 7>(from, nullptr, p.cols, block.tiles, 0, warp, kOneWarps, lane);
  }
  __syncthreads();

  float total[2] = {};
  for (int item = begin; item < end; ++item) {
    const uint8_t* bytes = stream.wait();
    OneTile<kType> own;
    own.load(bytes, stream.tiles.spans(tile), x, tile, lane);
    stream.done(lane);
    own.add(lane, total);
    if (++tile < block.tiles && item + 1 < end) continue;
    put_sums(total, sums + (current * kOneWarps + warp) * 16, lane);
    ++current;
    tile = 0;
  }
  __syncthreads();
  if (!output.writes) return;
  float v[kSources] = {}, squares = 0;
#pragma unroll
  for (int w = 0; w < kOneWarps; ++w) {  // of which some had no tile of it and have 0
#pragma unroll
    for (int m = 0; m < kSources; ++m) {
      v[m] += sums[((kSources * unit + m) * kOneWarps + w) * 16 + row];
    }
    if constexpr (kNorm) squares += warp_squares[w];
  }
  const float factor = kNorm ? norm_factor(p, squares) : 1;
  if constexpr (kPaired) {
    v[0] = row_glu(rows.glu, v[0] * factor + output.bias[0], v[1] * factor + output.bias[1]);
  } else {
    v[0] *= factor;
  }
  *output.y = v[0] + output.before;
}

template <DType kFirst, DType kSecond, bool kPaired, bool kNorm>
__global__ void __launch_bounds__(kOneThreads, kOneBlocks)
    marlin_gemv_dense(const __grid_constant__ OneProduct p,
                      const __grid_constant__ OneShape shape) {
  let_next_kernel_start();
  const OneBlock block = OneBlock::of<OneWork::Heads>(p, shape);
  if (kFirst == kSecond || p.rows[block.part].dtype == kFirst) {
    dense_block<kFirst, kPaired, kNorm>(p, shape, block, shape.stages[0]);
  } else {
    dense_block<kSecond, kPaired, kNorm>(p, shape, block, shape.stages[1]);
  }
}

}  // namespace ktx::kernels

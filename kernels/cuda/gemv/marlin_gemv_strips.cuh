// GEMV of dense weights of few rows: a block a strip of 16 rows, three strips at most for an
// SM (marlin_gemv_launch.cuh), as of q, k and v and of attention's output.
//
// A warp has one tile of the strip. It asks for it before the wait for the kernel ahead, so the
// memory works while that one drains, and converts the x of its own columns alone, so that the
// block meets once, at its end. Two tiles a warp are faster alone and slower in a token: the code
// is longer (README.md).
//
// The arithmetic: gemv_tile.cuh. Only x is rounded, to whole numbers of 16 bits; all else is exact
// or F32, sums over warps in rising order.
//
// Roofline: bytes of the weights / memory bandwidth. SM occupancy: two blocks of 16 warps.
#pragma once

#include "kernels/cuda/common/bulk_copy.cuh"
#include "kernels/cuda/gemv/gemv_tile.cuh"
#include "kernels/cuda/gemv/marlin_gemv_output.cuh"
#include "kernels/cuda/gemv/marlin_gemv_shape.cuh"

namespace ktx::kernels {

#if __CUDA_ARCH__ >= 900
template <DType kType, bool kNorm>
__device__ __forceinline__ void strip_block(const OneProduct& p, const OneRows& rows, int strip) {
  extern __shared__ uint4 one_shared[];
  __shared__ uint64_t barriers[kStripWarps];
  __shared__ float sums[kStripWarps][16], squares[kStripWarps];
  constexpr int kTileBytes = kMarlinTileBytes<kType>;
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, tile = thread / 32;
  const MarlinTiles<MarlinTile<kType>> tiles(p.cols);  // a warp each
  // Shared memory: the strip, x.
  uint8_t* memory = reinterpret_cast<uint8_t*>(one_shared);
  uint8_t* own = memory + tile * kTileBytes;
  const OneX x(memory + tiles.count * kTileBytes, tiles.count);
  if (lane == 0) {
    barrier_init(barriers + tile, 1);
    barrier_init_done();
    const uint8_t* w = rows.w[0] + blockIdx.y * rows.matrix_bytes +
                       (rows.strip_begin() + strip) * rows.strip_bytes;
    bulk_copy_once(own, w + tile * kTileBytes, tiles.spans(tile) * (kTileBytes / 4),
                   barriers + tile);
  }
  const int k = tile * 256 + 8 * lane;
  const bool inside = k < p.cols;
  float4 v[2] = {}, norm[2] = {};
  if (kNorm && inside) {
    norm[0] = *reinterpret_cast<const float4*>(p.norm + k);
    norm[1] = *reinterpret_cast<const float4*>(p.norm + k + 4);
  }
  wait_for_inputs();
  if (inside) {
    const auto* from = reinterpret_cast<const float4*>(p.x + blockIdx.y * p.x_stride + k);
    v[0] = from[0], v[1] = from[1];
  }
  const DenseOutput<false> output(rows, thread < 16, strip, thread);
  if constexpr (kNorm) {
    const float square = warp_sum(squares_of(v[1], squares_of(v[0], 0)));
    if (lane == 0) squares[tile] = square;
    v[0] = times(v[0], norm[0]), v[1] = times(v[1], norm[1]);
  }
  x.put(tile, v[0], v[1], lane);
  __syncwarp();
  barrier_wait(barriers + tile, 0);
  float total[2] = {};
  OneTile<kType> weights;
  weights.load(own, tiles.spans(tile), x, tile, lane);
  weights.add(lane, total);
  put_sums(total, sums[tile], lane);
  __syncthreads();
  if (!output.writes) return;
  float sum = 0, all = 0;
#pragma unroll
  for (int w = 0; w < kStripWarps; ++w) {
    if (w < tiles.count) sum += sums[w][thread];
    if (kNorm && w < tiles.count) all += squares[w];
  }
  *output.y = (kNorm ? sum * norm_factor(p, all) : sum) + output.before;
}
#endif

template <DType kFirst, DType kSecond, bool kNorm>
__global__ void __launch_bounds__(32 * kStripWarps, kStripBlocks)
    marlin_gemv_strips(const __grid_constant__ OneProduct p,
                       const __grid_constant__ OneShape shape) {
#if __CUDA_ARCH__ >= 900
  let_next_kernel_start();
  const int part = part_of_block(p, shape);
  const int strip = static_cast<int>(blockIdx.x) - shape.first_block[part];
  if (kFirst == kSecond || p.rows[part].dtype == kFirst) {
    strip_block<kFirst, kNorm>(p, p.rows[part], strip);
  } else {
    strip_block<kSecond, kNorm>(p, p.rows[part], strip);
  }
#endif
}

}  // namespace ktx::kernels

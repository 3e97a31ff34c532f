// The phases of the persistent kernel with weights: products with marlin weights (what
// marlin_one.cuh does in a launch of its own: see there for the arithmetic), and the router's.
//
// Of a phase's tiles a block has those of some strips, and each of its warps an equal
// part of them in a row, which have been asked for already (persistent_ring.cuh); per strip the
// warps' sums are added in rising order.
#pragma once

#include "kernels/cuda/marlin_one.cuh"
#include "kernels/cuda/one_tile.cuh"
#include "kernels/cuda/persistent_ring.cuh"

namespace ktx::kernels {

constexpr int kPersistentUnits = kPersistentThreads / 16;  // of a block: a thread an output

// What a phase of experts and the sum that follows it share, in shared memory.
struct ChosenExperts {
  int expert[kCudaMaxTopK];  // by choice
  float weight[kCudaMaxTopK];
  int rank[kCudaMaxTopK];  // choices in rising order of experts
};

#if __CUDA_ARCH__ >= 900

// What one warp leaves of its choice (lane k: choice k).
__device__ __forceinline__ void put_choice(const OneProduct& p, const RouterChoice& choice,
                                           ChosenExperts& chosen, int lane) {
  const int top_k = p.router.attrs.top_k;
  const int id = lane < top_k ? choice.id : INT_MAX;
  if (lane < top_k) {
    chosen.expert[lane] = max(id, 0);
    chosen.weight[lane] = choice.weight;
    if (blockIdx.x == 0) p.router.ids[lane] = id, p.router.weights[lane] = choice.weight;
  }
  int before = 0;
  for (int o = 0; o < top_k; ++o) {
    const int other = __shfl_sync(~0u, id, o);
    before += other < id || (other == id && o < lane);
  }
  if (lane < top_k) chosen.rank[before] = lane;
}

// This warp's tiles of the share, all of one format; sums: [strip][warp][row].
template <DType kType>
__device__ __forceinline__ void warp_tiles(const BlockShare& share, const OneX& x, float* sums,
                                           TileQueue& queue, int warp, int lane) {
  constexpr int kTileBytes = MarlinStream<kType>::kTileBytes;
  const int items = share.items(), tiles = share.tiles;
  const int begin = items * warp / kPersistentWarps, end = items * (warp + 1) / kPersistentWarps;
  if (begin == end) return;
  int strip = begin / tiles, tile = begin - strip * tiles;
  // Of a sum every source has its own row of x.
  const bool sum = share.work == OneWork::Sum;
  int row = sum ? strip / share.units : 0, unit = strip - row * share.units;
  int x_tile = row * tiles + tile, chunk = 0, taken = 0;
  const uint8_t* bytes = nullptr;
  float total[2] = {};
#pragma unroll 1
  for (int left = end - begin; left > 0; --left) {
    if (taken == chunk) {
      chunk = min(min(kChunkTiles, left), tiles - tile);
      taken = 0;
      bytes = queue.wait(chunk * kTileBytes);
    }
    OneTile<kType> own;
    own.load(bytes, 4, x, x_tile, lane);
    bytes += kTileBytes;
    if (++taken == chunk) queue.done(lane);
    own.add(lane, total);
    ++x_tile;
    if (++tile < tiles && left > 1) continue;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float v = total[r];
      v += __shfl_xor_sync(~0u, v, 1);
      v += __shfl_xor_sync(~0u, v, 2);
      if (lane % 4 == 0) sums[(strip * kPersistentWarps + warp) * 16 + lane / 4 + 8 * r] = v;
      total[r] = 0;
    }
    ++strip;
    tile = 0;
    if (++unit == share.units) unit = 0, row += sum;
    x_tile = row * tiles;
  }
}

template <DType kFirst, DType kSecond>
__device__ __forceinline__ void products_phase(const PersistentArgs& args, const OneProduct& p,
                                               const BlockShare& share, uint8_t* scratch,
                                               ChosenExperts& chosen, TileRings& rings,
                                               TileQueue& queue) {
  __shared__ float warp_squares[kPersistentWarps];
  if (threadIdx.x == 0) barrier_arrive(&rings.begun);
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
  const OneRows& rows = p.rows[share.part];
  const int tiles = share.tiles, top_k = p.router.attrs.top_k;
  const OneX x(scratch, (p.work == OneWork::Sum ? top_k : 1) * tiles);
  float* sums = reinterpret_cast<float*>(scratch + args.x_bytes);
  // This thread's output, and what is added to it.
  const int unit = thread / 16, row = thread % 16;
  int strip = share.first + unit;
  float* y = rows.y;
  if (p.work == OneWork::Choices) {
    y += strip / share.matrix_strips * rows.y_stride;
    strip %= share.matrix_strips;
  }
  const int n = (rows.strip_begin() + strip) * 16 + row - rows.row_begin;
  const bool writes = unit < share.units && n >= 0 && n < rows.row_count;
  float before = 0;
  if (writes && rows.accumulate) before = y[n];
  if (writes && rows.bias) before += rows.bias[n];

  for (int i = thread; i < share.units * share.sources * kPersistentWarps * 16;
       i += kPersistentThreads) {
    sums[i] = 0;  // of strips that a warp has no tile of
  }
  if (p.work == OneWork::Choices) {
    // The last warp chooses, the others take x.
    if (warp == kPersistentWarps - 1) {
      auto* memory = reinterpret_cast<float*>(scratch + args.x_bytes + args.sum_bytes);
      // Half the code to run through where it does: the choice takes 5700 cycles instead of 8400.
      const RouterChoice choice = p.router.attrs.experts <= 128
                                      ? choose_experts<4>(p.router, 0, memory, lane)
                                      : choose_experts<8>(p.router, 0, memory, lane);
      put_choice(p, choice, chosen, lane);
      barrier_arrive(&rings.chosen);
    } else {
      x.load<false>(p.x, nullptr, p.cols, tiles, 0, warp, kPersistentWarps - 1, lane);
    }
  } else if (p.work == OneWork::Sum) {
    for (int k = warp; k < top_k; k += kPersistentWarps) {
      x.load<false>(p.x + k * p.x_stride, nullptr, p.cols, tiles, k * tiles, 0, 1, lane);
    }
  } else if (p.norm) {
    const float squares =
        warp_sum(x.load<true>(p.x, p.norm, p.cols, tiles, 0, warp, kPersistentWarps, lane));
    if (lane == 0) warp_squares[warp] = squares;
  } else {
    x.load<false>(p.x, nullptr, p.cols, tiles, 0, warp, kPersistentWarps, lane);
  }
  meet_warps();

  if (kFirst == kSecond || share.format == 0) {
    warp_tiles<kFirst>(share, x, sums, queue, warp, lane);
  } else {
    warp_tiles<kSecond>(share, x, sums, queue, warp, lane);
  }
  meet_warps();
  if (!writes) return;
  float factor = 1;
  if (p.norm) {
    float all = 0;
    for (int w = 0; w < kPersistentWarps; ++w) all += warp_squares[w];
    factor = 1 / sqrtf(all / static_cast<float>(p.cols) + p.eps);
  }
  const auto strip_sum = [&](int j) {
    float v = 0;
#pragma unroll
    for (int w = 0; w < kPersistentWarps; ++w) v += sums[(j * kPersistentWarps + w) * 16 + row];
    return v * factor;
  };
  float v = 0;
  if (p.work == OneWork::Sum) {
    for (int i = 0; i < top_k; ++i) {
      v += chosen.weight[chosen.rank[i]] * strip_sum(chosen.rank[i] * share.units + unit);
    }
  } else if (rows.w[1]) {
    v = silu(strip_sum(unit)) * strip_sum(share.units + unit);
  } else {
    v = strip_sum(unit);
  }
  y[n] = v + before;
}

// A block a row; each block writes its share of the normed row.
__device__ __forceinline__ void router_phase(const RouterPhase& p) {
  __shared__ float partial[kPersistentWarps][2];
  const int thread = static_cast<int>(threadIdx.x), block = static_cast<int>(blockIdx.x);
  const int blocks = static_cast<int>(gridDim.x);
  for (int row = block; row < p.rows || row == block; row += blocks) {
    float sum = 0, squares = 0;
    for (int k = 4 * thread; k < p.cols; k += 4 * kPersistentThreads) {
      const float4 x = *reinterpret_cast<const float4*>(p.x + k);
      const float4 norm = *reinterpret_cast<const float4*>(p.norm + k);
      float4 w{0, 0, 0, 0};
      if (row < p.rows) w = *reinterpret_cast<const float4*>(p.w + int64_t{row} * p.cols + k);
      squares = squares_of(x, squares);
      sum = fmaf(x.x * norm.x, w.x, sum);
      sum = fmaf(x.y * norm.y, w.y, sum);
      sum = fmaf(x.z * norm.z, w.z, sum);
      sum = fmaf(x.w * norm.w, w.w, sum);
    }
    sum = warp_sum(sum);
    squares = warp_sum(squares);
    if (thread % 32 == 0) partial[thread / 32][0] = sum, partial[thread / 32][1] = squares;
    meet_warps();
    sum = squares = 0;
#pragma unroll
    for (int i = 0; i < kPersistentWarps; ++i) sum += partial[i][0], squares += partial[i][1];
    const float scale = 1 / sqrtf(squares / static_cast<float>(p.cols) + p.eps);
    if (thread == 0 && row < p.rows) p.logits[row] = sum * scale;
    if (row == block) {
      const int share = ceil_div(p.cols, blocks), begin = block * share;
      const int end = min(p.cols, begin + share);
      for (int k = begin + thread; k < end; k += kPersistentThreads) {
        p.normed[k] = p.x[k] * scale * p.norm[k];
      }
    }
    meet_warps();
  }
}

#endif

}  // namespace ktx::kernels

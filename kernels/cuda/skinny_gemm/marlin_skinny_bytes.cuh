// Skinny GEMM of up to eight tokens on integer tensor cores (sm_90), for Q4_K, Q5_K and Q6_K.
//
// A warp has 256 columns, whose activations it makes whole numbers of 16 bits itself and keeps in
// registers (skinny_bytes_x.cuh), and walks with them over the block's units (strips of 16 rows, or
// pairs of gate and up): x needs no records, and the warps meet once, at the end. Columns
// from the 4,096th on are those of the other blocks of the cluster:
//
//   gate and up, 2 x 14336 x 4096: 128 blocks of 16 warps, 7 pairs of strips each
//   4096 x 14336: 29 clusters of four blocks of 14 warps, 9 strips each
//
// Tiles come by bulk copies through a ring of each warp (the first are asked for before the kernel
// ahead has ended). Sums of a block's warps are added in rising order, then those of the cluster's
// blocks, each unit's by one of them (cluster_stores.cuh). The factor of a norm is put to the sums.
//
// Roofline: bytes of the weights / memory bandwidth; for Q4_K about 1.4 instructions a weight and
// lane.
#pragma once

#include <atomic>

#include "kernels/cuda/common/cluster_stores.cuh"
#include "kernels/cuda/common/cuda_launch.cuh"
#include "kernels/cuda/marlin/marlin_stream.cuh"
#include "kernels/cuda/skinny_gemm/marlin_skinny.h"
#include "kernels/cuda/skinny_gemm/skinny_bytes_tile.cuh"
#include "kernels/rows/glu.h"

namespace ktx::kernels {

constexpr int kBytesWarps = 16, kBytesTokens = 8, kMostRanges = 8, kBytesStages = 4;

// What the launcher decides.
struct BytesShape {
  int units = 1;                    // of a cluster
  int log_ranges = 0;               // of columns: blocks of a cluster
  int columns = 1;                  // tiles of a range, at most: warps that share a unit
  int log_phases = 0;               // units at once
  int stages = 1;                   // tiles of a warp on their way
  int own_bytes = 0;                // of a warp: x on its way to registers, then sums
  int first[kLaunchProducts] = {};  // cluster of each part
  __host__ __device__ int ranges() const { return 1 << log_ranges; }
  __host__ __device__ int warps() const { return columns << log_phases; }
  // Units of a cluster that one block writes, at most.
  __host__ __device__ int own_units() const { return (units + ranges() - 1) >> log_ranges; }
};

#if __CUDA_ARCH__ >= 900
template <DType kType, int kGroups, bool kPaired, bool kNorm>
__device__ __forceinline__ void bytes_block(const BatchProduct& p, const BytesShape& shape,
                                            const BatchRows& rows, int group) {
  using Tile = BytesTile<kType>;
  constexpr int kTileBytes = kMarlinTileBytes<kType>, kSources = kPaired ? 2 : 1;
  constexpr int kSums = kGroups * 32;  // float2 of a tile
  extern __shared__ uint4 dynamic_shared[];
  __shared__ uint64_t tile_there[kBytesWarps][kBytesStages], inbox_there;
  __shared__ float squares[kBytesWarps][kBytesTokens];
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
  const int ranges = shape.ranges(), rank = static_cast<int>(blockIdx.x) & (ranges - 1);
  const int first_unit = group * shape.units;
  const int units = min(shape.units, rows.strips() - first_unit);
  const int tiles = (p.cols + 255) / 256;
  const int begin = (tiles * rank) >> shape.log_ranges;
  const int end = (tiles * (rank + 1)) >> shape.log_ranges;
  const int column = warp % shape.columns, phase = warp / shape.columns;
  const int tile = begin + column;
  const bool works = tile < end && phase < units;
  const int items = works ? (((units - 1 - phase) >> shape.log_phases) + 1) * kSources : 0;

  // Shared memory: rings, each warp's own, what comes from the cluster.
  uint8_t* const memory = reinterpret_cast<uint8_t*>(dynamic_shared);
  uint8_t* const ring = memory + warp * shape.stages * kTileBytes;
  uint8_t* const own_memory = memory + shape.warps() * shape.stages * kTileBytes;
  uint8_t* const own = own_memory + warp * shape.own_bytes;
  float2* const inbox = reinterpret_cast<float2*>(own_memory + shape.warps() * shape.own_bytes);

  const uint8_t* next[kSources];
  const int64_t unit_step = rows.strip_bytes << shape.log_phases;
#pragma unroll
  for (int m = 0; m < kSources; ++m) {
    next[m] = rows.w[m] + (first_unit + phase) * rows.strip_bytes + int64_t{tile} * kTileBytes;
  }
  int asked = 0, fill = 0;
  const auto fetch = [&](int m) {  // by one lane
    bulk_copy_once(ring + fill * kTileBytes, next[m], kTileBytes, &tile_there[warp][fill]);
    next[m] += unit_step;
    ++asked;
    if (++fill == shape.stages) fill = 0;
  };
  if (lane == 0) {
    for (int i = 0; i < shape.stages; ++i) barrier_init(&tile_there[warp][i], 1);
    barrier_init_done();
#pragma unroll 1
    for (int i = 0; i < min(shape.stages, items); ++i) fetch(kPaired ? i % 2 : 0);
  }
  // The units that this block writes, and what comes of them from the cluster's blocks.
  const bool of_cluster = ranges > 1;
  const int own_units = (units - rank + ranges - 1) >> shape.log_ranges;
  const int inbox_rank = shape.own_units() * kSources * kSums;  // float2 of a block
  if (of_cluster) {
    if (thread == 0) {
      barrier_init(&inbox_there, 1);
      barrier_init_done();
      barrier_expect(&inbox_there,
                     ranges * (own_units * kSources * kSums * 8 + (kNorm ? kBytesTokens * 4 : 0)));
    }
    begin_in_cluster();
  }
  const int k = tile * 256 + 8 * lane;
  const bool inside = works && k < p.cols;
  float4 norm[2] = {};
  if (kNorm && inside) {
    norm[0] = *reinterpret_cast<const float4*>(p.norm_weight + k);
    norm[1] = *reinterpret_cast<const float4*>(p.norm_weight + k + 4);
  }
  if (of_cluster) wait_after_arrival();
  wait_for_inputs();

  BytesX<kGroups, Tile::kHalves> x;
  float4 v[4 * kGroups][2];
#pragma unroll
  for (int i = 0; i < 4 * kGroups; ++i) {
    v[i][0] = v[i][1] = float4{0, 0, 0, 0};
    if (!inside || i >= p.tokens) continue;
    const auto* from = reinterpret_cast<const float4*>(p.plain_x + i * p.x_stride + k);
    v[i][0] = from[0], v[i][1] = from[1];
  }
#pragma unroll
  for (int i = 0; i < 4 * kGroups; ++i) {
    if constexpr (kNorm) {
      const float square = warp_sum(squares_of(v[i][1], squares_of(v[i][0], 0)));
      if (lane == 0) squares[warp][i] = square;
      v[i][0] = times(v[i][0], norm[0]), v[i][1] = times(v[i][1], norm[1]);
    }
    x.put(i / 4, i % 4, v[i][0], v[i][1], own, lane);
  }
  // An output of this thread: local unit, group of tokens, lane.
  const auto y_of = [&](int out, int r) -> float* {
    const int token = out / 32 % kGroups * 4 + out % 4,
              unit = (out / kSums << shape.log_ranges) + rank;
    const int n = (first_unit + unit) * 16 + out % 32 / 4 + 8 * r;
    const bool there = out < own_units * kSums && token < p.tokens && n < rows.row_count;
    return there ? rows.y + token * rows.y_stride + n : nullptr;
  };
  float before[2] = {};
  if (!kPaired && rows.accumulate) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      if (const float* y = y_of(thread, r)) before[r] = *y;
    }
  }
  __syncwarp();
  x.take(own, lane);
  __syncwarp();  // sums take its place

  float2* sums = reinterpret_cast<float2*>(own) + lane;
  int current = 0;
  uint32_t phase_bit = 0;
#pragma unroll 1
  for (int item = 0; item < items; ++item) {
    barrier_wait(&tile_there[warp][current], phase_bit);
    float out[kGroups][2];
    Tile::template multiply<kGroups>(ring + current * kTileBytes, x, lane, out);
    if (++current == shape.stages) current = 0, phase_bit ^= 1;
    if (item + shape.stages < items) {
      end_reads_before_bulk_copies();
      __syncwarp();  // all lanes have read it
      if (lane == 0) fetch(kPaired ? asked % 2 : 0);
    }
#pragma unroll
    for (int n = 0; n < kGroups; ++n) sums[n * 32] = float2{out[n][0], out[n][1]};
    sums += kSums;
  }
  __syncthreads();

  const int columns = end - begin;
  // The sum of a unit's warps.
  const auto block_sum = [&](int unit, int m, int place) {
    const int first = (unit & ((1 << shape.log_phases) - 1)) * shape.columns;
    const uint8_t* from = own_memory + first * shape.own_bytes +
                          (((unit >> shape.log_phases) * kSources + m) * kSums + place) * 8;
    float2 sum = {0, 0};
#pragma unroll
    for (int w = 0; w < kBytesWarps; ++w) {
      if (w >= columns) break;
      const float2 part = *reinterpret_cast<const float2*>(from + w * shape.own_bytes);
      sum.x += part.x, sum.y += part.y;
    }
    return sum;
  };
  const float* cluster_squares = reinterpret_cast<const float*>(inbox + ranges * inbox_rank);
  if (of_cluster) {
    for (int i = thread; i < units * kSources * kSums; i += static_cast<int>(blockDim.x)) {
      const int unit = i / (kSources * kSums), m = i / kSums % kSources, place = i % kSums;
      store_of_rank(
          inbox + rank * inbox_rank + ((unit >> shape.log_ranges) * kSources + m) * kSums + place,
          block_sum(unit, m, place), unit & (ranges - 1), &inbox_there);
    }
    if (kNorm && thread < kBytesTokens / 2 * ranges) {
      const int pair = thread % (kBytesTokens / 2), to = thread / (kBytesTokens / 2);
      float2 sum = {0, 0};
      for (int w = 0; w < columns; ++w) {
        sum.x += squares[w][2 * pair], sum.y += squares[w][2 * pair + 1];
      }
      store_of_rank(inbox + ranges * inbox_rank + rank * (kBytesTokens / 2) + pair, sum, to,
                    &inbox_there);
    }
    barrier_wait(&inbox_there, 0);
  }
  for (int out = thread; out < own_units * kSums; out += static_cast<int>(blockDim.x)) {
    const int local = out / kSums, place = out % kSums;
    const int token = out / 32 % kGroups * 4 + out % 4;
    if (token >= p.tokens) continue;
    float2 v[kSources];
#pragma unroll
    for (int m = 0; m < kSources; ++m) {
      if (!of_cluster) {
        v[m] = block_sum(local, m, place);
        continue;
      }
      v[m] = float2{0, 0};
      const float2* from = inbox + (local * kSources + m) * kSums + place;
      for (int r = 0; r < ranges; ++r, from += inbox_rank) {
        v[m].x += from->x, v[m].y += from->y;
      }
    }
    float factor = 1;
    if constexpr (kNorm) {
      float all = 0;
      if (of_cluster) {
        for (int r = 0; r < ranges; ++r) all += cluster_squares[r * kBytesTokens + token];
      } else {
#pragma unroll
        for (int w = 0; w < kBytesWarps; ++w) {
          if (w < columns) all += squares[w][token];
        }
      }
      factor = rsqrtf(__fdividef(all, static_cast<float>(p.cols)) + p.eps);
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float* const y = y_of(out, r);
      if (!y) continue;
      float value = (r ? v[0].y : v[0].x) * factor;
      if constexpr (kPaired) {
        *y = row_glu(rows.glu, value, (r ? v[1].y : v[1].x) * factor);
      } else {
        if (rows.bias) value += rows.bias[y - rows.y - token * rows.y_stride];
        if (rows.accumulate) value += out == thread ? before[r] : *y;
        *y = value;
      }
    }
  }
}
#endif

template <DType kFirst, DType kSecond>
inline constexpr bool kBytesHalves = BytesTile<kFirst>::kHalves || BytesTile<kSecond>::kHalves;
// Most tokens. (H200, 8 tokens, 4096 x 14336: Q4_K 14.7 us, with records 16.5 with 4 tokens
// and 19.3 with 16; Q6_K 24.7, with records 20.2 and 22.0: Llama-3.1-8B 2.28 ms, with records of
// Q6_K 2.20.)
template <DType kFirst, DType kSecond>
inline constexpr int kMostBytesTokens = kBytesHalves<kFirst, kSecond> ? 4 : kBytesTokens;
// Blocks of an SM whose registers fit: two of 64 a thread, where these are enough.
template <DType kFirst, DType kSecond, int kGroups>
inline constexpr int kBytesBlocks = kGroups == 1 && !kBytesHalves<kFirst, kSecond> ? 2 : 1;

// kGroups: of four tokens. Block x of the grid: range x % ranges of cluster x / ranges.
template <DType kFirst, DType kSecond, int kGroups, bool kPaired, bool kNorm>
__global__ void __launch_bounds__(32 * kBytesWarps, kBytesBlocks<kFirst, kSecond, kGroups>)
    marlin_skinny_bytes(const __grid_constant__ BatchProduct p,
                        const __grid_constant__ BytesShape shape) {
#if __CUDA_ARCH__ >= 900
  let_next_kernel_start();
  const int cluster = static_cast<int>(blockIdx.x) >> shape.log_ranges;
  int part = 0;
  for (int i = 1; i < p.parts; ++i) part = cluster >= shape.first[i] ? i : part;
  const BatchRows& rows = p.rows[part];
  const int group = cluster - shape.first[part];
  if (kFirst == kSecond || rows.dtype == kFirst) {
    bytes_block<kFirst, kGroups, kPaired, kNorm>(p, shape, rows, group);
  } else {
    bytes_block<kSecond, kGroups, kPaired, kNorm>(p, shape, rows, group);
  }
#endif
}

// Clusters of a product at `units` units each, and the first of each part.
inline int bytes_clusters(const BatchProduct& p, int units, int (&first)[kLaunchProducts]) {
  int all = 0;
  for (int i = 0; i < p.parts; ++i) {
    first[i] = all;
    all += ceil_div(p.rows[i].strips(), units);
  }
  return all;
}

template <DType kFirst, DType kSecond, int kGroups, bool kPaired, bool kNorm>
Status launch_bytes_as(const BatchProduct& p, const BytesShape& shape, int bytes,
                       cudaStream_t stream) {
  int first[kLaunchProducts];
  const int clusters = bytes_clusters(p, shape.units, first);
  return launch_clusters(
      "products of few tokens", marlin_skinny_bytes<kFirst, kSecond, kGroups, kPaired, kNorm>,
      dim3(clusters * shape.ranges()), shape.ranges(), 32 * shape.warps(), bytes, stream, p, shape);
}

// Clusters of so many blocks that run at once with a block an SM: asked once, all GPUs of a machine
// being alike.
template <DType kFirst, DType kSecond>
int bytes_room(int ranges) {
  static std::atomic<int> rooms[kMostRanges + 1];
  if (rooms[ranges] == 0) {
    rooms[ranges] = ranges == 1
                        ? sm_count()
                        : clusters_at_once(marlin_skinny_bytes<kFirst, kSecond, 1, false, false>,
                                           ranges, 32 * kBytesWarps, 160 * 1024);
  }
  return rooms[ranges];
}

// With a tile or half of one for each warp there is little to gain by activations in registers.
// (H200, q, k and v of 2,048 columns, 4 tokens: 6.5 us, with records 6.0.)
constexpr int kLeastBytesTiles = 9;

// False where shared memory is short: an output matrix, more than 32,768 columns.
template <DType kFirst, DType kSecond>
bool bytes_shape(const BatchProduct& p, BytesShape& shape, int& bytes) {
  constexpr int kTile[2] = {kMarlinTileBytes<kFirst>, kMarlinTileBytes<kSecond>};
  constexpr int kWidest = kTile[0] > kTile[1] ? kTile[0] : kTile[1];
  const int tiles = ceil_div(p.cols, 256), groups = p.tokens > 4 ? 2 : 1;
  const int sources = p.rows[0].w[1] ? 2 : 1;
  if (tiles < kLeastBytesTiles) return false;
  while (ceil_div(tiles, shape.ranges()) > kBytesWarps) ++shape.log_ranges;
  if (shape.ranges() > kMostRanges) return false;
  shape.columns = ceil_div(tiles, shape.ranges());
  while (shape.columns << (shape.log_phases + 1) <= kBytesWarps) ++shape.log_phases;
  const int room = bytes_room<kFirst, kSecond>(shape.ranges());
  int strips = 0;
  for (int i = 0; i < p.parts; ++i) strips += p.rows[i].strips();
  shape.units = ceil_div(strips, room);
  while (bytes_clusters(p, shape.units, shape.first) > room) ++shape.units;
  const int items = ceil_div(shape.units, 1 << shape.log_phases) * sources;
  const int x_bytes = groups * 8 * 288, sum_bytes = items * groups * 256;
  shape.own_bytes = x_bytes > sum_bytes ? x_bytes : sum_bytes;
  int rest = shape.warps() * shape.own_bytes;
  if (shape.ranges() > 1) {
    rest += shape.ranges() * (shape.own_units() * sources * groups * 256 + kBytesTokens * 4);
  }
  const int limit = shared_memory_limit() - 2 * 1024;
  shape.stages = (limit - rest) / (shape.warps() * kWidest);
  if (shape.stages > kBytesStages) shape.stages = kBytesStages;
  if (shape.stages > items) shape.stages = items;
  bytes = rest + shape.warps() * shape.stages * kWidest;
  return shape.stages >= 2 || shape.stages == items;
}

template <DType kFirst, DType kSecond>
bool bytes_take(const BatchProduct& p) {
  BytesShape shape;
  int bytes = 0;
  return p.tokens <= kMostBytesTokens<kFirst, kSecond> &&
         bytes_shape<kFirst, kSecond>(p, shape, bytes);
}

template <DType kFirst, DType kSecond>
Status launch_bytes(const BatchProduct& p, cudaStream_t stream) {
  BytesShape shape;
  int bytes = 0;
  if (!bytes_take<kFirst, kSecond>(p) || !bytes_shape<kFirst, kSecond>(p, shape, bytes)) {
    return Error{"products of few tokens: more tokens or shared memory than there may be"};
  }
  const auto norm = [&]<int kGroups, bool kPaired>() {
    return p.norm_weight
               ? launch_bytes_as<kFirst, kSecond, kGroups, kPaired, true>(p, shape, bytes, stream)
               : launch_bytes_as<kFirst, kSecond, kGroups, kPaired, false>(p, shape, bytes, stream);
  };
  const auto paired = [&]<int kGroups>() {
    if constexpr (kFirst == kSecond) {  // gate and up have one format
      if (p.rows[0].w[1]) return norm.template operator()<kGroups, true>();
    }
    return norm.template operator()<kGroups, false>();
  };
  if constexpr (kMostBytesTokens < kFirst, kSecond >> 4) {
    if (p.tokens > 4) return paired.template operator()<2>();
  }
  return paired.template operator()<1>();
}

}  // namespace ktx::kernels

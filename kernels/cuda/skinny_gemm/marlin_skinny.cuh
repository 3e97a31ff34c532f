// Skinny GEMM: products of 2 to 32 tokens with marlin weights, at the speed of the memory (sm_90).
//
// The weights are the A operand of mma.m16n8k16 (16 rows x 16 columns), eight tokens the
// columns of B, so 2 tokens and 8 cost the same. A block of 16 warps (8, where shared memory is
// short) takes 1 to 16 groups of strips (of one or two; of gate and of up) and a range of columns;
// the other ranges are with the other blocks of its cluster (split-K):
//
//   8192 x 8192, 16 tokens: 64 clusters of 2 blocks, 128 rows and 4096 columns to a block
//
// Each warp has a ring of tiles in shared memory that it fills itself (skinny_ring.cuh), from
// before the kernel ahead has ended. Activations come as records of 256 columns (skinny_x.h) by
// bulk copies, kSlots of them at a time; the warp that is the last to use one asks for the next
// in its place. No barrier of the block stands between the first tile and the last. Sums meet
// at the end (cluster_sums.cuh). The factor of a norm is put to the sums: no block waits for it.
//
// Roofline: bytes of the weights / memory bandwidth; for Q4_K about 2 instructions a weight
// and lane. SM occupancy: one block to an SM: clusters of two blocks fill it where those of two
// smaller ones, which have to be four or more, leave some empty.
#pragma once

#include <atomic>
#include <cmath>

#include "kernels/cuda/common/cluster_sums.cuh"
#include "kernels/cuda/common/cuda_launch.cuh"
#include "kernels/cuda/skinny_gemm/marlin_skinny.h"
#include "kernels/cuda/skinny_gemm/skinny_ring.cuh"
#include "kernels/cuda/skinny_gemm/skinny_tile.cuh"
#include "kernels/cuda/skinny_gemm/skinny_x.h"
#include "kernels/rows/glu.h"

namespace ktx::kernels {

// How a kernel uses shared memory: records of x, then the rings, whose place the sums take.
template <DType kType, int kColumns, int kSources, int kWarps>
struct BatchMemory {
  static constexpr int kShare = kWarps * 110 / 8 * 1024;  // of an SM's, less what is static
  static constexpr int kRecord = batch_record_bytes(kColumns);
  static constexpr int kLeast = kWarps * 2 * kSources * 4 * MarlinTile<kType>::kSpanBytes;
  static constexpr bool kFits = kLeast + kWarps / 4 * kRecord <= kShare;
  static constexpr int kSlots = kLeast + kWarps / 2 * kRecord <= kShare ? kWarps / 2 : kWarps / 4;
  using Ring = BatchRing<kType, kSources, kWarps, kShare - kSlots * kRecord>;
  static constexpr int kSums = kWarps * kSources * 16 * 8 * kColumns * 4;
  static constexpr int kBytes =
      kSlots * kRecord + (kWarps * Ring::kBytes > kSums ? kWarps * Ring::kBytes : kSums);
};

// Warps of a block: 8 only where the rings of 16 are too large.
template <DType kFirst, DType kSecond, int kColumns, int kSources>
constexpr int kBatchWarps = BatchMemory<kFirst, kColumns, kSources, 16>::kFits&&
                                    BatchMemory<kSecond, kColumns, kSources, 16>::kFits
                                ? 16
                                : 8;

// What the launcher decides: groups of strips to a block, ranges of columns, and the first
// cluster of each part.
struct BatchShape {
  int strips = 1, splits = 1;
  int first[kLaunchProducts] = {};
};

#if __CUDA_ARCH__ >= 900
// Adds one to a counter of the block; true for the one that makes it `all`, which finds it 0
// again the next time.
__device__ __forceinline__ bool last_of(uint32_t* counter, uint32_t all) {
  uint32_t before;
  asm volatile("atom.acq_rel.cta.shared.inc.u32 %0, [%1], %2;"
               : "=r"(before)
               : "r"(shared_address(counter)), "r"(all - 1)
               : "memory");
  return before == all - 1;
}

template <DType kType, int kColumns, int kSources, bool kPaired, int kWarps>
__device__ __forceinline__ void batch_block(const BatchProduct& p, const BatchShape& shape,
                                            const BatchRows& rows, int group) {
  using Memory = BatchMemory<kType, kColumns, kSources, kWarps>;
  using Ring = typename Memory::Ring;
  constexpr int kTokens = 8 * kColumns, kSlots = Memory::kSlots, kRecord = Memory::kRecord;
  constexpr int kRowStrips = kPaired ? 1 : kSources;  // strips of rows of a warp
  extern __shared__ uint4 dynamic_shared[];
  __shared__ uint64_t there[kSlots];  // barriers: a record has come
  __shared__ uint32_t used[kSlots];   // warps that are done with it
  __shared__ float factor[kTokens];
  __shared__ uint64_t tile_there[kWarps][Ring::kStages];
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
  const int split = static_cast<int>(blockIdx.x) % shape.splits;
  const int warps_per_strip = kWarps / shape.strips;
  const int strip_begin = group * shape.strips * kRowStrips, strip_end = rows.strips();
  const int tiles = (p.cols + 255) / 256;
  const int begin = tiles * split / shape.splits, end = tiles * (split + 1) / shape.splits;
  uint8_t* records = reinterpret_cast<uint8_t*>(dynamic_shared);
  uint8_t* rest = records + kSlots * kRecord;

  let_next_kernel_start();
  if (thread == 0) {
    for (int i = 0; i < kSlots; ++i) {
      barrier_init(there + i, 1);
      used[i] = 0;
    }
  }
  Ring ring(rows.w, rows.strip_bytes, p.cols, kPaired,
            strip_begin + warp / warps_per_strip * kRowStrips, strip_end,
            begin + warp % warps_per_strip, warps_per_strip, end, rest + warp * Ring::kBytes,
            tile_there[warp], lane);
  ring.start(lane);
  __syncthreads();
  const uint8_t* x = reinterpret_cast<const uint8_t*>(p.x) + begin * kRecord;
  const int active = min(shape.strips, (strip_end - strip_begin + kRowStrips - 1) / kRowStrips);
  wait_for_inputs();
  if (thread == 0) {
    for (int i = 0; i < min(kSlots, end - begin); ++i) {
      bulk_copy(records + i * kRecord, x + i * kRecord, kRecord, there + i);
    }
  }
  if (p.norm) {  // sixteen lanes a token
    const float* squares = reinterpret_cast<const float*>(p.x + int64_t{tiles} * kRecord);
    for (int token = thread / 16; token < kTokens; token += 2 * kWarps) {
      float sum = 0;
      if (token < p.tokens) {
        for (int i = thread % 16; i < tiles; i += 16) sum += squares[i * kBatchTokens + token];
      }
      for (int o = 8; o > 0; o /= 2) sum += __shfl_xor_sync(~0u, sum, o);
      if (thread % 16 == 0) factor[token] = 1 / sqrtf(sum / static_cast<float>(p.cols) + p.eps);
    }
  }

  float total[kSources][kColumns][4] = {};
  for (int item = 0; item < ring.count; ++item) {
    const int number = ring.tile(item) - begin, slot = number % kSlots;
    const uint8_t* record = records + slot * kRecord;
    ring.wait();
    BatchTile<kType> tile[kSources];
#pragma unroll
    for (int m = 0; m < kSources; ++m) tile[m].load(ring.stage(m), ring.spans(item), lane);
    barrier_wait(there + slot, number / kSlots & 1);
    float sum[kSources][kColumns][4] = {};
#pragma unroll
    for (int c = 0; c < 8; ++c) {
      const auto b_of = [&](int n) {
        return reinterpret_cast<const uint4*>(record)[(c * kColumns + n) * 32 + lane];
      };
      if constexpr (kColumns < 4) {
        uint4 b[kColumns];
#pragma unroll
        for (int n = 0; n < kColumns; ++n) b[n] = b_of(n);
#pragma unroll
        for (int m = 0; m < kSources; ++m) {
          uint32_t a[2][4];
          tile[m].fragment(c, *reinterpret_cast<uint32_t(*)[8]>(a));
#pragma unroll
          for (int n = 0; n < kColumns; ++n) {
            mma_f16(sum[m][n], a[0], b[n].x, b[n].y);
            mma_f16(sum[m][n], a[1], b[n].z, b[n].w);
          }
        }
      } else {  // fewer registers
        uint32_t a[kSources][2][4];
#pragma unroll
        for (int m = 0; m < kSources; ++m) {
          tile[m].fragment(c, *reinterpret_cast<uint32_t(*)[8]>(a[m]));
        }
#pragma unroll
        for (int n = 0; n < kColumns; ++n) {
          const uint4 b = b_of(n);
#pragma unroll
          for (int m = 0; m < kSources; ++m) {
            mma_f16(sum[m][n], a[m][0], b.x, b.y);
            mma_f16(sum[m][n], a[m][1], b.z, b.w);
          }
        }
      }
    }
    BatchScales scales[kColumns];
#pragma unroll
    for (int n = 0; n < kColumns; ++n) {
      scales[n].sums = load_as<uint2>(record + kColumns * 4096 + (n * 32 + lane) * 8);
      scales[n].x = load_as<float2>(record + kColumns * 4352 + (4 * n + lane % 4) * 8);
    }
#pragma unroll
    for (int m = 0; m < kSources; ++m) tile[m].add(sum[m], scales, lane, total[m]);
    ring.done(lane);  // all lanes have read the record too
    if (lane == 0 && number + kSlots < end - begin && last_of(used + slot, active)) {
      bulk_copy(records + slot * kRecord, x + (number + kSlots) * kRecord, kRecord, there + slot);
    }
  }
  __syncthreads();  // the rings are done with: their memory takes the sums

  float* sums = reinterpret_cast<float*>(rest);
  store_sums<kSources, kColumns>(total, sums, warp, lane);
  const SumPlace place = {p.tokens, shape.strips, warps_per_strip, split, shape.splits};
  add_sums<kTokens, kSources, kPaired>(
      sums, place, [&](int token, int local, int quad, const auto& v) {
        const int n = (strip_begin + local) * 16 + quad * 4;
        const float norm = p.norm ? factor[token] : 1;
        float* y = rows.y + token * rows.y_stride;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          if (n + i >= rows.row_count) continue;
          float value = element(v[0], i) * norm;
          if constexpr (kPaired) {
            y[n + i] = row_glu(rows.glu, value, element(v[1], i) * norm);
          } else {
            if (rows.bias) value += rows.bias[n + i];
            y[n + i] = rows.accumulate ? y[n + i] + value : value;
          }
        }
      });
}
#endif

// kColumns: 8 * kColumns tokens at most. kSources: strips of a warp; kPaired: one of gate and
// one of up. Block x of the grid: range x % splits of cluster x / splits.
template <DType kFirst, DType kSecond, int kColumns, int kSources, bool kPaired, int kWarps>
__global__ void __launch_bounds__(32 * kWarps, 16 / kWarps)
    marlin_skinny(const __grid_constant__ BatchProduct p,
                  const __grid_constant__ BatchShape shape) {
#if __CUDA_ARCH__ >= 900
  const int cluster = static_cast<int>(blockIdx.x) / shape.splits;
  int part = 0;
  for (int i = 1; i < p.parts; ++i) part = cluster >= shape.first[i] ? i : part;
  const BatchRows& rows = p.rows[part];
  const int group = cluster - shape.first[part];
  if constexpr (kFirst == kSecond) {
    batch_block<kFirst, kColumns, kSources, kPaired, kWarps>(p, shape, rows, group);
  } else if (rows.dtype == kFirst) {
    batch_block<kFirst, kColumns, kSources, kPaired, kWarps>(p, shape, rows, group);
  } else {
    batch_block<kSecond, kColumns, kSources, kPaired, kWarps>(p, shape, rows, group);
  }
#endif
}

// How many clusters a product has at `strips` groups of `sources` strips to a block.
inline int batch_clusters(const BatchProduct& p, int sources, int strips, BatchShape* shape) {
  int all = 0;
  for (int i = 0; i < p.parts; ++i) {
    if (shape) shape->first[i] = all;
    all += ceil_div(ceil_div(p.rows[i].strips(), sources), strips);
  }
  return all;
}
// The shape of least time by a count fitted to all shapes of eight products (one H200, us): to
// start and to end, the tiles of a warp, the blocks of a cluster, and waits for records of x
// (with a warp of a strip for each slot none is on its way while others are used); all times the
// rounds that the clusters take. room(splits): clusters at once.
template <class Room>
BatchShape batch_shape(const BatchProduct& p, int row_strips, int sources, int warps, int slots,
                       Room room) {
  const int tiles = ceil_div(p.cols, 256), most = tiles < kMostSplits ? tiles : kMostSplits;
  BatchShape best;
  float least = 0;
  for (int splits = 1; splits <= most; ++splits) {
    const int range = ceil_div(tiles, splits);
    for (int strips = warps; strips >= 1; strips /= 2) {
      const int share = warps / strips;  // warps to a strip
      if (share > slots || (share > 1 && share > range)) break;
      const auto items = static_cast<float>(ceil_div(range, share));
      const float waits = share == slots ? items
                                         : 1 + (items - 1) * 0.5f * static_cast<float>(share) /
                                                   static_cast<float>(slots);
      const float rounds = static_cast<float>(batch_clusters(p, row_strips, strips, nullptr)) /
                           static_cast<float>(room(splits));
      const float time = (3.9f + (0.7f + 0.37f * static_cast<float>(sources)) * items +
                          1.4f * waits + 0.3f * static_cast<float>(splits)) *
                         (rounds <= 3 ? std::ceil(rounds) : rounds + 0.3f);
      if (least == 0 || time < least) {
        least = time;
        best.strips = strips;
        best.splits = splits;
      }
    }
  }
  return best;
}

template <DType kFirst, DType kSecond, int kColumns, int kSources, bool kPaired>
Status launch_batch_as(const BatchProduct& p, cudaStream_t stream) {
  constexpr int kWarps = kBatchWarps<kFirst, kSecond, kColumns, kSources>;
  using First = BatchMemory<kFirst, kColumns, kSources, kWarps>;
  using Second = BatchMemory<kSecond, kColumns, kSources, kWarps>;
  constexpr auto kKernel = marlin_skinny<kFirst, kSecond, kColumns, kSources, kPaired, kWarps>;
  constexpr int kBytes = First::kBytes > Second::kBytes ? First::kBytes : Second::kBytes;
  constexpr int kSlots = First::kSlots < Second::kSlots ? First::kSlots : Second::kSlots;
  constexpr int kRowStrips = kPaired ? 1 : kSources;
  // Clusters of each size that run at once: asked once, all GPUs of a machine being alike.
  static std::atomic<int> rooms[kMostSplits + 1];
  const auto room = [&](int splits) {
    if (rooms[splits] == 0) {
      rooms[splits] = clusters_at_once(kKernel, splits, 32 * kWarps, kBytes);
    }
    return rooms[splits].load();
  };
  BatchShape shape = batch_shape(p, kRowStrips, kSources, kWarps, kSlots, room);
  const int clusters = batch_clusters(p, kRowStrips, shape.strips, &shape);
  return launch_clusters("products of a batch", kKernel, dim3(clusters * shape.splits),
                         shape.splits, 32 * kWarps, kBytes, stream, p, shape);
}

template <DType kFirst, DType kSecond, int kColumns>
Status launch_batch_columns(const BatchProduct& p, cudaStream_t stream) {
  if constexpr (kFirst == kSecond) {
    if (p.rows[0].w[1]) return launch_batch_as<kFirst, kFirst, kColumns, 2, true>(p, stream);
    if constexpr (kColumns < 4 && BatchMemory<kFirst, kColumns, 2, 16>::kFits) {
      // Two strips a warp share fragments of x, but take all registers: the kernel that makes the
      // next records finds no room beside them. H200, one strip instead: 16 tokens 0 to 22 % less
      // time but for output matrices, up to 8 tokens 3 to 7 % less, and more with many rows.
      int strips = 0;
      for (int i = 0; i < p.parts; ++i) strips += p.rows[i].strips();
      if (strips >= sm_count() * (kColumns == 1 ? 3 : 32)) {
        return launch_batch_as<kFirst, kFirst, kColumns, 2, false>(p, stream);
      }
    }
  }
  return launch_batch_as<kFirst, kSecond, kColumns, 1, false>(p, stream);
}

template <DType kFirst, DType kSecond>
Status launch_batch(const BatchProduct& p, cudaStream_t stream) {
  switch (batch_columns(p.tokens)) {
    case 1:
      return launch_batch_columns<kFirst, kSecond, 1>(p, stream);
    case 2:
      return launch_batch_columns<kFirst, kSecond, 2>(p, stream);
    default:
      return launch_batch_columns<kFirst, kSecond, 4>(p, stream);
  }
}

}  // namespace ktx::kernels

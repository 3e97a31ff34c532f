// What the chunks of a delta rule need that does not depend on the matrix (delta_chunks.cuh): keys
// and queries split for tensor cores, T and P of each head.
//
// A block takes a chunk and a key head with its value heads: 256 threads, 64 KiB of shared memory,
// two blocks an SM. Warps 0 .. 3 have 16 rows each of K K^T, warps 4 .. 7 of Q K^T, in registers.
// T by halves of 32: of the two triangles on the diagonal a lane solves for one column, then
// T21 = -T22 A21 T11.
//
// Roofline: of 16 key and 32 value heads a chunk writes 2 MiB, half a microsecond of H200 memory.
#include "kernels/cuda/common/cuda_launch.cuh"
#include "kernels/cuda/common/mma.cuh"
#include "kernels/cuda/common/split_bf16.cuh"
#include "kernels/cuda/delta_net/delta_chunks.cuh"
#include "kernels/cuda/delta_net/delta_gates.cuh"

namespace ktx::kernels {
namespace {

constexpr int kWarps = 8;
constexpr int kTogether = 2;            // value heads whose triangles are inverted at a time
constexpr int kHalf = kDeltaChunk / 2;  // rows
// A token keeps at least exp(this), which is 0: so sums have digits left.
constexpr float kLeastLog = -200;

// Below the diagonal A, which becomes T; above the blocks on the diagonal a product on the way.
struct Triangle {
  float row[kDeltaChunk][kDeltaChunk + 4];
};

struct Shared {
  union {
    ChunkKeys keys;  // until K K^T and Q K^T are there
    Triangle triangles[kTogether];
  };
  ChunkGates gates[kTogether];
};

__device__ __forceinline__ void store_pair(uint16_t* high, int plane, int place, SplitPair pair) {
  *reinterpret_cast<uint32_t*>(high + place) = pair.high;
  *reinterpret_cast<uint32_t*>(high + plane + place) = pair.low;
}

// A warp takes a row to length `scale`, splits it, and writes it to both places.
__device__ __forceinline__ void split_row(const float4& x, float scale, int row, int lane,
                                          uint16_t* shared, uint16_t* global) {
  const float factor =
      scale / sqrtf(warp_sum(x.x * x.x + x.y * x.y + x.z * x.z + x.w * x.w) + 1e-6f);
  const SplitPair a = split_pair(factor * x.x, factor * x.y);
  const SplitPair b = split_pair(factor * x.z, factor * x.w);
  const int place = split_place<kDeltaChunkDim>(row, 4 * lane);
  for (uint16_t* to : {shared + place, global + place}) {
    *reinterpret_cast<uint2*>(to) = {a.high, b.high};
    *reinterpret_cast<uint2*>(to + kKeyPlane) = {a.low, b.low};
  }
}

__device__ __forceinline__ void split_keys(const CudaDeltaRuleArgs& a, int64_t row, int key_head,
                                           int warp, int lane, ChunkKeys& shared,
                                           ChunkKeys& global) {
  constexpr int kAhead = 4;
  const float head_scale = 1 / sqrtf(static_cast<float>(kDeltaChunkDim));
  const float* const queries = a.x + row * a.x_stride + key_head * kDeltaChunkDim + 4 * lane;
  const float* const keys = queries + a.attrs.key_heads * kDeltaChunkDim;
  for (int i = warp; i < kDeltaChunk; i += kAhead * kWarps) {
    float4 q[kAhead], k[kAhead];
#pragma unroll
    for (int j = 0; j < kAhead; ++j) {
      const int64_t at = (i + j * kWarps) * a.x_stride;
      q[j] = *reinterpret_cast<const float4*>(queries + at);
      k[j] = *reinterpret_cast<const float4*>(keys + at);
    }
#pragma unroll
    for (int j = 0; j < kAhead; ++j) {
      split_row(q[j], head_scale, i + j * kWarps, lane, shared.q, global.q);
      split_row(k[j], 1, i + j * kWarps, lane, shared.k, global.k);
    }
  }
}

// A warp takes one head's gates; lane l has tokens 2l and 2l + 1.
__device__ __forceinline__ void add_gates(const CudaDeltaRuleArgs& a, int64_t row, int head,
                                          int lane, ChunkGates& shared, ChunkGates& global) {
  Gates gates[2];
  double log[2];
#pragma unroll
  for (int j = 0; j < 2; ++j) {
    gates[j] = gates_of<false>(a, head, row + 2 * lane + j);
    log[j] = fmaxf(gates[j].log_kept, kLeastLog);
  }
  log[1] += log[0];
  double before = log[1];
  for (int o = 1; o < 32; o *= 2) {
    const double other = __shfl_up_sync(~0u, before, o);
    if (lane >= o) before += other;
  }
  const double end = __shfl_sync(~0u, before, 31);
  before -= log[1];
#pragma unroll
  for (int j = 0; j < 2; ++j) {
    const double g = before + log[j];
    const auto high = static_cast<float>(g);
    for (ChunkGates* to : {&shared, &global}) {
      const int i = 2 * lane + j;
      to->strength[i] = gates[j].strength;
      to->from_start[i] = expf(high);
      to->to_end[i] = expf(static_cast<float>(end - g));
      to->log_high[i] = high;
      to->log_low[i] = static_cast<float>(g - high);
    }
  }
}

// Rows 16 * tile .. + 15 of left K^T, on and below the diagonal.
__device__ __forceinline__ void multiply_keys(const ChunkKeys& keys, const uint16_t* left, int tile,
                                              int lane, float (&sums)[8][4]) {
#pragma unroll
  for (int step = 0; step < kDeltaChunkDim / 16; ++step) {
    SplitA a;
    load_a<kDeltaChunkDim, kKeyPlane>(a, left, lane, tile, step);
#pragma unroll
    for (int n = 0; n < 8; n += 2) {
      if (n > 2 * tile) continue;  // the whole warp
      SplitB b[2];
      load_b<kDeltaChunkDim, kKeyPlane>(b[0], keys.k, lane, n, step);
      load_b<kDeltaChunkDim, kKeyPlane>(b[1], keys.k, lane, n + 1, step);
      mma_split(sums[n], a, b[0]);
      mma_split(sums[n + 1], a, b[1]);
    }
  }
}

// A of these rows from K K^T.
__device__ __forceinline__ void write_a(const float (&sums)[8][4], const ChunkGates& gates,
                                        int tile, int lane, Triangle& to) {
#pragma unroll
  for (int n = 0; n < 8; ++n) {
    if (n > 2 * tile + 1) continue;
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int i = 16 * tile + lane / 4 + e / 2 * 8, j = 8 * n + lane % 4 * 2 + e % 2;
      if (j < i) to.row[i][j] = gates.strength[i] * gates.from_to(j, i) * sums[n][e];
    }
  }
}

// P of these rows from Q K^T.
__device__ __forceinline__ void write_p(const float (&sums)[8][4], const ChunkGates& gates,
                                        int tile, int lane, ChunkHead& to) {
#pragma unroll
  for (int n = 0; n < 8; ++n) {
    if (n > 2 * tile + 1) continue;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int i = 16 * tile + lane / 4 + 8 * half, j = 8 * n + lane % 4 * 2;
      const float first = j <= i ? gates.from_to(j, i) * sums[n][2 * half] : 0;
      const float second = j < i ? gates.from_to(j + 1, i) * sums[n][2 * half + 1] : 0;
      store_pair(to.p, kPairPlane, split_place<kDeltaChunk>(i, j), split_pair(first, second));
    }
  }
}

// The triangle on the diagonal from row `first` on becomes its inverse, by one warp.
__device__ __forceinline__ void invert_half(Triangle& a, int first, int lane) {
  float x[kHalf];
#pragma unroll
  for (int i = 0; i < kHalf; ++i) {
    float sum[4] = {i == lane ? 1.0f : 0.0f, 0, 0, 0};
#pragma unroll
    for (int j = 0; j < i; j += 4) {
      const float4 four = *reinterpret_cast<const float4*>(&a.row[first + i][first + j]);
      sum[0] = fmaf(-four.x, x[j], sum[0]);
      if (j + 1 < i) sum[1] = fmaf(-four.y, x[j + 1], sum[1]);
      if (j + 2 < i) sum[2] = fmaf(-four.z, x[j + 2], sum[2]);
      if (j + 3 < i) sum[3] = fmaf(-four.w, x[j + 3], sum[3]);
    }
    x[i] = sum[0] + sum[1] + (sum[2] + sum[3]);
  }
  __syncwarp();
#pragma unroll
  for (int i = 0; i < kHalf; ++i) a.row[first + i][first + lane] = x[i];
}

// to = sign * left * right, squares of 32 that begin at these rows and columns; by 128 threads.
__device__ __forceinline__ void multiply_halves(Triangle& a, int thread, int left_row,
                                                int left_column, int right_row, int right_column,
                                                int to_row, int to_column, float sign) {
  const int i = thread / 4, c = thread % 4 * 8;
  float sum[8] = {};
#pragma unroll 8
  for (int j = 0; j < kHalf; ++j) {
    const float left = a.row[left_row + i][left_column + j];
    const auto* const right =
        reinterpret_cast<const float4*>(&a.row[right_row + j][right_column + c]);
    const float4 low = right[0], high = right[1];
    sum[0] = fmaf(left, low.x, sum[0]);
    sum[1] = fmaf(left, low.y, sum[1]);
    sum[2] = fmaf(left, low.z, sum[2]);
    sum[3] = fmaf(left, low.w, sum[3]);
    sum[4] = fmaf(left, high.x, sum[4]);
    sum[5] = fmaf(left, high.y, sum[5]);
    sum[6] = fmaf(left, high.z, sum[6]);
    sum[7] = fmaf(left, high.w, sum[7]);
  }
#pragma unroll
  for (int e = 0; e < 8; ++e) a.row[to_row + i][to_column + c + e] = sign * sum[e];
}

// T, split; by 128 threads.
__device__ __forceinline__ void write_t(const Triangle& from, int thread, ChunkHead& to) {
  for (int unit = thread; unit < kDeltaChunk * 8; unit += 128) {
    const int i = unit / 8, j = unit % 8 * 8;
    SplitPair pairs[4];
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int column = j + 2 * e;
      pairs[e] = split_pair(column <= i ? from.row[i][column] : 0,
                            column < i ? from.row[i][column + 1] : 0);
    }
    uint16_t* const place = to.t + split_place<kDeltaChunk>(i, j);
    *reinterpret_cast<uint4*>(place) = {pairs[0].high, pairs[1].high, pairs[2].high, pairs[3].high};
    *reinterpret_cast<uint4*>(place + kPairPlane) = {pairs[0].low, pairs[1].low, pairs[2].low,
                                                     pairs[3].low};
  }
}

// Blocks: (chunks, key heads).
__global__ void __launch_bounds__(32 * kWarps, 2)
    prepare_chunks(CudaDeltaRuleArgs a, ChunkSlab slab, ChunkScratch scratch) {
  extern __shared__ __align__(16) unsigned char bytes[];
  Shared& shared = *reinterpret_cast<Shared*>(bytes);
  begin_kernel();
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
  const int chunk = static_cast<int>(blockIdx.x), key_head = static_cast<int>(blockIdx.y);
  int run = 0;
  while (chunk >= slab.run[run].first + slab.run[run].count) ++run;
  const int64_t row = slab.run[run].row + (chunk - slab.run[run].first) * kDeltaChunk;

  ChunkKeys& keys = scratch.keys[chunk * a.attrs.key_heads + key_head];
  ChunkHead* const heads = scratch.heads + chunk * a.attrs.value_heads;
  split_keys(a, row, key_head, warp, lane, shared.keys, keys);
  __syncthreads();
  const int tile = warp % 4;
  float sums[8][4] = {};
  multiply_keys(shared.keys, warp < 4 ? shared.keys.k : shared.keys.q, tile, lane, sums);

  const int repeats = a.attrs.value_heads / a.attrs.key_heads;
  const auto head_of = [&](int repeat) {
    return a.attrs.tiled != 0 ? key_head + repeat * a.attrs.key_heads : key_head * repeats + repeat;
  };
  for (int first = 0; first < repeats; first += kTogether) {
    const int count = min(kTogether, repeats - first);
    if (warp < count) {
      const int head = head_of(first + warp);
      add_gates(a, row, head, lane, shared.gates[warp], heads[head].gates);
    }
    __syncthreads();  // and no one reads keys, or the last heads' triangles
    for (int r = 0; r < count; ++r) {
      if (warp < 4) {
        write_a(sums, shared.gates[r], tile, lane, shared.triangles[r]);
      } else {
        write_p(sums, shared.gates[r], tile, lane, heads[head_of(first + r)]);
      }
    }
    __syncthreads();
    if (warp < 2 * count) {
      invert_half(shared.triangles[warp / 2], warp % 2 * kHalf, lane);
    }
    __syncthreads();
    const int own = thread / 128;
    Triangle& triangle = shared.triangles[own];
    if (own < count) {
      multiply_halves(triangle, thread % 128, kHalf, 0, 0, 0, 0, kHalf, 1);  // A21 T11
    }
    __syncthreads();
    if (own < count) {
      multiply_halves(triangle, thread % 128, kHalf, kHalf, 0, kHalf, kHalf, 0, -1);
    }
    __syncthreads();
    if (own < count) write_t(triangle, thread % 128, heads[head_of(first + own)]);
  }
}

}  // namespace

Status launch_prepare_chunks(const CudaDeltaRuleArgs& a, const ChunkSlab& slab,
                             const ChunkScratch& scratch, CudaStream stream) {
  const dim3 grid(static_cast<unsigned>(slab.chunks), static_cast<unsigned>(a.attrs.key_heads));
  return launch("delta_rule: chunks", prepare_chunks, grid, 32 * kWarps, sizeof(Shared), stream, a,
                slab, scratch);
}

}  // namespace ktx::kernels

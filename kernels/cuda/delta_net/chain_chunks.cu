// The delta rule from chunk to chunk (delta_chunks.cuh): values and the matrix M.
//
// Everything is computed transposed: a warp's M^T has columns of M as rows of its fragments, so
// that the sums of one product are the A of the next, in registers, and only K, Q, T and P come
// from shared memory. Two warps share 16 columns: each has half of the rows of M, and they add up
// K M and Q M through shared memory.
//
//   X^T = M^T K^T    96 products of 16 x 8 x 16 a warp and chunk
//   Y^T = M^T Q^T    96
//   U^T = X^T T^T    60, the same in both warps
//   Y^T += U^T P^T   30
//   M^T += U^T K     96
//
// A block has 32 columns of a head: 128 threads, 219 KiB of shared memory, one an SM. Two stages
// of K, Q, T and P; two blocks of a head make a cluster, each of which loads half of a stage into
// both, since 97 KiB a chunk for each SM would be more than L2 gives.
//
// Roofline: 378 products a warp, each about 6.5 cycles: 2,460 cycles a chunk, 1.4 us on an H200;
// the bytes of a stage, 1,550 cycles of what an SM can take from L2.
#include "kernels/cuda/common/cluster_copy.cuh"
#include "kernels/cuda/common/cuda_launch.cuh"
#include "kernels/cuda/common/mma.cuh"
#include "kernels/cuda/common/split_bf16.cuh"
#include "kernels/cuda/delta_net/delta_chunks.cuh"

namespace ktx::kernels {
namespace {

constexpr int kWarps = 4;
constexpr int kBlockColumns = 32;
constexpr int kCluster = 2;
constexpr int kStages = 2;
constexpr int kRows = kDeltaChunkDim / 2;  // of M, a warp's

struct Stage {
  ChunkKeys keys;
  ChunkHead head;
};
struct Shared {
  Stage stages[kStages];
  float4 x_sums[2][2][8][32];  // by pair of warps, warp of it, tile, lane
  float4 y_sums[2][2][4][32];  // the tiles that the other warp writes
  uint64_t full[kStages];
};

#if __CUDA_ARCH__ >= 900

// A warp's half of the rows of 16 columns of M: tile n has rows 8 * n + 2 * (lane % 4) and the next
// one of columns lane / 4 (0, 1) and lane / 4 + 8 (2, 3).
using MatrixPart = float[8][4];

__device__ __forceinline__ int matrix_place(int n, int e, int lane) {
  return (8 * n + lane % 4 * 2 + e % 2) * kDeltaChunkDim + lane / 4 + e / 2 * 8;
}
__device__ __forceinline__ void load_matrix(MatrixPart& m, const float* from, int lane) {
#pragma unroll
  for (int n = 0; n < 8; ++n) {
#pragma unroll
    for (int e = 0; e < 4; ++e) m[n][e] = from ? from[matrix_place(n, e, lane)] : 0;
  }
}
__device__ __forceinline__ void store_matrix(const MatrixPart& m, float* to, int lane) {
#pragma unroll
  for (int n = 0; n < 8; ++n) {
#pragma unroll
    for (int e = 0; e < 4; ++e) to[matrix_place(n, e, lane)] = m[n][e];
  }
}

// Asks for a stage; by one thread of each block of the cluster.
__device__ __forceinline__ void fetch_stage(const ChunkKeys& keys, const ChunkHead& head, int rank,
                                            Stage& stage, uint64_t* full) {
  constexpr uint16_t kAll = (1 << kCluster) - 1;
  const auto share = [&](void* to, const void* from, int bytes) {
    copy_to_cluster(static_cast<char*>(to) + rank * bytes,
                    static_cast<const char*>(from) + rank * bytes, bytes, full, kAll);
  };
  barrier_expect(full, sizeof(Stage));
  share(&stage.keys, &keys, sizeof(ChunkKeys) / kCluster);
  share(&stage.head, &head, sizeof(ChunkHead) / kCluster);
}
static_assert(sizeof(Stage) == sizeof(ChunkKeys) + sizeof(ChunkHead));
static_assert(sizeof(ChunkHead) / kCluster % 16 == 0);

// sums += M^T B^T, where B has the chunk's tokens as rows; `half`: the warp's rows of M.
__device__ __forceinline__ void multiply_matrix(const SplitA (&m)[4], const uint16_t* b, int half,
                                                int lane, float (&sums)[8][4]) {
#pragma unroll
  for (int step = 0; step < 4; ++step) {
#pragma unroll
    for (int n = 0; n < 8; n += 4) {
      SplitB parts[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        load_b<kDeltaChunkDim, kKeyPlane>(parts[i], b, lane, n + i, 4 * half + step);
      }
      mma_split(&sums[n], m[step], parts);
    }
  }
}

// sums += x B^T for step's 16 columns of the lower triangle B (T or P).
__device__ __forceinline__ void multiply_triangle(const SplitA& x, const uint16_t* b, int step,
                                                  int lane, float (&sums)[8][4]) {
#pragma unroll
  for (int n = 2 * step; n < 8; n += 2) {
    SplitB parts[2];
    load_b<kDeltaChunk, kPairPlane>(parts[0], b, lane, n, step);
    load_b<kDeltaChunk, kPairPlane>(parts[1], b, lane, n + 1, step);
    mma_split(sums[n], x, parts[0]);
    mma_split(sums[n + 1], x, parts[1]);
  }
}

// to = kept * from + (U^T, token i times weight(i)) K: the matrix behind tokens of the chunk.
template <class Weight>
__device__ __forceinline__ void add_keys(const MatrixPart& from, float kept, const float (&u)[8][4],
                                         const Weight& weight, const uint16_t* k, int half,
                                         int lane, MatrixPart& to) {
#pragma unroll
  for (int n = 0; n < 8; ++n) {
#pragma unroll
    for (int e = 0; e < 4; ++e) to[n][e] = kept * from[n][e];
  }
#pragma unroll
  for (int step = 0; step < 4; ++step) {
    float tiles[2][4];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const float2 w = weight(16 * step + 8 * i + lane % 4 * 2);
#pragma unroll
      for (int e = 0; e < 4; ++e) tiles[i][e] = (e % 2 == 0 ? w.x : w.y) * u[2 * step + i][e];
    }
    const SplitA a = split_sums(tiles[0], tiles[1]);
#pragma unroll
    for (int n = 0; n < 8; n += 4) {
      SplitB parts[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        load_b_transposed<kDeltaChunkDim, kKeyPlane>(parts[i], k, lane, 8 * half + n + i, step);
      }
      mma_split(&to[n], a, parts);
    }
  }
}

__device__ __forceinline__ float2 two_of(const float* tokens, int i) {
  return *reinterpret_cast<const float2*>(tokens + i);
}

// The two warps of 16 columns meet.
__device__ __forceinline__ void meet_pair(int pair) {
  asm volatile("bar.sync %0, 64;" ::"r"(pair + 1) : "memory");
}

#endif

// Blocks: (columns, value heads, runs).
__global__ void __launch_bounds__(32 * kWarps, 1)
    chain_chunks(CudaDeltaRuleArgs a, ChunkSlab slab, ChunkScratch scratch) {
#if __CUDA_ARCH__ >= 900
  extern __shared__ __align__(128) unsigned char bytes[];
  Shared& shared = *reinterpret_cast<Shared*>(bytes);
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
  const int pair = warp / 2, half = warp % 2;
  const int rank = static_cast<int>(blockIdx.x) % kCluster;
  const int column = static_cast<int>(blockIdx.x) * kBlockColumns + 16 * pair;
  const int head = static_cast<int>(blockIdx.y);
  const ChunkRun run = slab.run[blockIdx.z];
  const int key_head = a.attrs.tiled != 0 ? head % a.attrs.key_heads
                                          : head / (a.attrs.value_heads / a.attrs.key_heads);
  if (thread == 0) {
    for (uint64_t& full : shared.full) barrier_init(&full, 1);
    barrier_init_done();
  }
  begin_kernel();
  meet_cluster();  // behind the barriers of all
  const auto fetch = [&](int c) {
    const int chunk = run.first + c;
    fetch_stage(scratch.keys[chunk * a.attrs.key_heads + key_head],
                scratch.heads[chunk * a.attrs.value_heads + head], rank, shared.stages[c % kStages],
                &shared.full[c % kStages]);
  };
  if (thread == 0) {
    for (int c = 0; c < min(kStages, run.count); ++c) fetch(c);
  }

  // Between two launches the text's last state lies where it will be behind the pass.
  const StateSegment* segment = a.texts.segments + a.texts.begin[run.text];
  const StateSegment last = a.texts.segments[a.texts.begin[run.text + 1] - 1];
  const int text_end = last.first + last.tokens;
  const int64_t place = (int64_t{head} * kDeltaChunkDim + half * kRows) * kDeltaChunkDim + column;
  const auto state = [&](int slot) {
    return slot < 0 ? nullptr : a.states.slots + slot * a.states.slot_floats + place;
  };
  MatrixPart m;
  load_matrix(m, state(run.begins ? segment->in : last.out), lane);
  while (segment->first + segment->tokens <= run.row) ++segment;
  int behind = segment->first + segment->tokens, out = segment->out;  // of the segment at hand
  const auto next_segment = [&] {
    if (behind == text_end) return;
    ++segment;
    behind = segment->first + segment->tokens;
    out = segment->out;
  };

  const float* const values =
      a.x + (2 * a.attrs.key_heads + head) * kDeltaChunkDim + column + lane / 4;
  float* const y_rows = a.y + head * kDeltaChunkDim + column + lane / 4;
  for (int c = 0; c < run.count; ++c) {
    const int row = run.row + c * kDeltaChunk;
    const Stage& stage = shared.stages[c % kStages];
    const ChunkGates& gates = stage.head.gates;
    // This lane's first row among the tokens whose sums this warp completes.
    const int64_t own_row = row + 32 * half + lane % 4 * 2;
    float v[4][4];
#pragma unroll
    for (int n = 0; n < 4; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        v[n][e] = values[(own_row + 8 * n + e % 2) * a.x_stride + e / 2 * 8];
      }
    }
    SplitA parts[4];
#pragma unroll
    for (int step = 0; step < 4; ++step) parts[step] = split_sums(m[2 * step], m[2 * step + 1]);
    barrier_wait(&shared.full[c % kStages], c / kStages % 2);

    float x[8][4] = {}, y[8][4] = {};
    multiply_matrix(parts, stage.keys.k, half, lane, x);
    if (c > 0 && c + 1 < run.count) {
      wait_after_arrival();  // all of the cluster have read the chunk before
      if (thread == 0) fetch(c + 1);
    }
#pragma unroll
    for (int n = 0; n < 8; ++n) {
      const int i = 8 * n + lane % 4 * 2;
      const float2 strength = two_of(gates.strength, i), from_start = two_of(gates.from_start, i);
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const float value = n / 4 == half ? v[n % 4][e] : 0;
        const float known = (e % 2 == 0 ? from_start.x : from_start.y) * x[n][e];
        x[n][e] = (e % 2 == 0 ? strength.x : strength.y) * (value - known);
      }
      shared.x_sums[pair][half][n][lane] = {x[n][0], x[n][1], x[n][2], x[n][3]};
    }
    multiply_matrix(parts, stage.keys.q, half, lane, y);
    meet_pair(pair);
#pragma unroll
    for (int n = 0; n < 8; ++n) {
      const float4 other = shared.x_sums[pair][1 - half][n][lane];
      x[n][0] += other.x;
      x[n][1] += other.y;
      x[n][2] += other.z;
      x[n][3] += other.w;
    }
    float u[8][4] = {};
#pragma unroll
    for (int step = 0; step < 4; ++step) {
      multiply_triangle(split_sums(x[2 * step], x[2 * step + 1]), stage.head.t, step, lane, u);
    }

#pragma unroll
    for (int n = 0; n < 8; ++n) {
      const float2 from_start = two_of(gates.from_start, 8 * n + lane % 4 * 2);
#pragma unroll
      for (int e = 0; e < 4; ++e) y[n][e] *= e % 2 == 0 ? from_start.x : from_start.y;
    }
#pragma unroll
    for (int step = 0; step < 4; ++step) {
      // One warp takes 8 and 2 pairs of tiles, the other 6 and 4.
      if ((step == 0 || step == 3) != (half == 0)) continue;
      multiply_triangle(split_sums(u[2 * step], u[2 * step + 1]), stage.head.p, step, lane, y);
    }
#pragma unroll
    for (int n = 0; n < 8; ++n) {
      if (n / 4 == half) continue;
      shared.y_sums[pair][half][n % 4][lane] = {y[n][0], y[n][1], y[n][2], y[n][3]};
    }

    for (; behind < row + kDeltaChunk; next_segment()) {
      const int end = behind - row - 1;  // the segment's last token
      MatrixPart cut;
      const auto weight = [&](int i) {
        return float2{i <= end ? gates.from_to(i, end) : 0,
                      i < end ? gates.from_to(i + 1, end) : 0};
      };
      add_keys(m, gates.from_start[end], u, weight, stage.keys.k, half, lane, cut);
      store_matrix(cut, state(out), lane);
    }
    const auto weight = [&](int i) { return two_of(gates.to_end, i); };
    add_keys(m, gates.from_start[kDeltaChunk - 1], u, weight, stage.keys.k, half, lane, m);
    if (behind == row + kDeltaChunk) {
      store_matrix(m, state(out), lane);
      next_segment();
    }

    meet_pair(pair);
#pragma unroll
    for (int n = 0; n < 8; ++n) {
      if (n / 4 != half) continue;
      const float4 other = shared.y_sums[pair][1 - half][n % 4][lane];
      float* const to = y_rows + (own_row + n % 4 * 8) * a.y_stride;
      to[0] = y[n][0] + other.x;
      to[a.y_stride] = y[n][1] + other.y;
      to[8] = y[n][2] + other.z;
      to[a.y_stride + 8] = y[n][3] + other.w;
    }
    if (c + kStages < run.count) {
      end_reads_before_bulk_copies();
      arrive_at_cluster();
    }
  }
  if (run.row + run.count * kDeltaChunk < text_end) store_matrix(m, state(last.out), lane);
#endif
}

}  // namespace

Status launch_chain_chunks(const CudaDeltaRuleArgs& a, const ChunkSlab& slab,
                           const ChunkScratch& scratch, CudaStream stream) {
  const dim3 grid(kDeltaChunkDim / kBlockColumns, static_cast<unsigned>(a.attrs.value_heads),
                  static_cast<unsigned>(slab.runs));
  return launch_clusters("delta_rule: from chunk to chunk", chain_chunks, grid, kCluster,
                         32 * kWarps, sizeof(Shared), stream, a, slab, scratch);
}

}  // namespace ktx::kernels

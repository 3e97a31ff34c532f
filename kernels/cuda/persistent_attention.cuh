// Attention of one token as a phase of the persistent kernel. A block has a KV head and a run of
// its pieces of 64 positions; each four of its warps take every fourth piece (a warp's work:
// attention_piece.cuh), and what these teams found is merged in shared memory. Where a KV head's
// pieces are spread over several blocks (more pieces than teams), the last one to end merges them,
// in rising order.
#pragma once

#include "kernels/cuda/attention_head.cuh"
#include "kernels/cuda/attention_piece.cuh"
#include "kernels/cuda/persistent_ring.cuh"

namespace ktx::kernels {

constexpr int kPieceTeams = kPersistentThreads / kAttentionThreads;

// Shared memory of the phase.
inline int attention_phase_bytes(const AttentionAttrs& a, int splits) {
  const int group = a.heads / a.kv_heads;
  const int walk =
      (kAttentionRows + 1) * a.key_dim * 4 + kPieceTeams * kAttentionRows * kScorePitch * 4;
  const int merge = kPieceTeams * group * a.value_dim * 4;
  const int block = kAttentionRows * a.key_dim * 2 + (walk > merge ? walk : merge);
  const int parts = group * splits * 8;
  return block > parts ? block : parts;
}

#if __CUDA_ARCH__ >= 900

// A barrier of a team of four warps; 0 is the block's.
__device__ __forceinline__ void meet_team(int team) {
  __syncwarp();
  asm volatile("barrier.sync.aligned %0, %1;" ::"r"(1 + team), "n"(kAttentionThreads) : "memory");
}
// Adds 1 and gives the count before; all that this thread's block wrote before is seen by who
// counts later, and the other way round.
__device__ __forceinline__ uint32_t count_ended(uint32_t* ended) {
  uint32_t before;
  asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], 1;"
               : "=r"(before)
               : "l"(ended)
               : "memory");
  return before;
}

// Which pieces a block has: [begin, end) of those of its KV head, over `used` blocks.
struct AttentionShare {
  int kv_head, split, used, begin, end, position;
  AttentionShare() = default;
  __device__ explicit AttentionShare(const AttentionPhase& phase) {
    const int block = static_cast<int>(blockIdx.x);
    kv_head = block / phase.splits;
    split = block - kv_head * phase.splits;
    position = max(phase.args.kv.position[0], 0);
    const int pieces = position / kPiece + 1;
    used = min(phase.splits, (pieces + kPieceTeams - 1) / kPieceTeams);
    const bool there = kv_head < phase.args.attrs.kv_heads && split < used;
    begin = there ? pieces * split / used : 0;
    end = there ? pieces * (split + 1) / used : 0;
  }
};

// What the phases of attention need and no phase makes. All of a kernel are of one shape, for one
// token, so where it reads is worked out once; the rest while the blocks meet.
struct AttentionReady {
  static constexpr int kPieces = 8;  // of a team, whose blocks of the cache are looked up once
  AttentionShare share;
  bool padding;                      // the token is none
  int blocks[kPieceTeams][kPieces];  // of the cache
  int new_block;                     // for the token's key and value
  float2 turns[128];                 // rope_turn of each pair
  float norms[2][256];               // of q and k
};

__device__ __forceinline__ int cache_block(const CudaKvView& kv, int position) {
  return kv.table[kv.sequence[0] * kv.table_stride +
                  position / static_cast<int>(kv.layout.block_tokens)];
}
__device__ __forceinline__ void begin_attention(const AttentionPhase& phase,
                                                AttentionReady& ready) {
  const AttentionShare share(phase);
  const CudaKvView& kv = phase.args.kv;
  const int thread = static_cast<int>(threadIdx.x);
  if (thread == 0) {
    ready.share = share;
    ready.padding = kv.position[0] < 0;
    ready.new_block = cache_block(kv, share.position);
  }
  if (thread < kPieceTeams * AttentionReady::kPieces) {
    const int team = thread / AttentionReady::kPieces, i = thread % AttentionReady::kPieces;
    const int piece = share.begin + team + i * kPieceTeams;
    if (piece < share.end) ready.blocks[team][i] = cache_block(kv, piece * kPiece);
  }
}

// Rows of the `i`-th piece of a team.
__device__ __forceinline__ PieceRows piece_rows(const AttentionPhase& phase,
                                                const AttentionReady& ready, int team, int i) {
  const AttentionShare& share = ready.share;
  const CudaKvView& kv = phase.args.kv;
  const int first = (share.begin + team + i * kPieceTeams) * kPiece;
  const int block = i < AttentionReady::kPieces ? ready.blocks[team][i] : cache_block(kv, first);
  const std::byte* slot = kv.pool + block * kv.block_bytes + kv.slot_offset;
  const int in_block = first % static_cast<int>(kv.layout.block_tokens);
  return {slot + kv.layout.key_offset(share.kv_head, in_block),
          slot + kv.layout.value_offset(share.kv_head, in_block), kv.layout.key_row_bytes(),
          kv.layout.value_row_bytes(), min(kPiece, share.position + 1 - first) - 1};
}

// Turns and norms; and asks for the block's part of the cache.
__device__ __forceinline__ void prepare_attention(const AttentionPhase& phase,
                                                  AttentionReady& ready) {
  const AttentionShare& share = ready.share;
  if (share.begin == share.end) return;
  const CudaAttentionPrepare& p = phase.args.prepare;
  const int thread = static_cast<int>(threadIdx.x);
  for (int i = thread; i < p.rope.rotary_dim / 2; i += kPersistentThreads) {
    ready.turns[i] = rope_turn(p, share.position, i);
  }
  for (int i = thread; i < phase.args.attrs.key_dim; i += kPersistentThreads) {
    if (p.q_norm) ready.norms[0][i] = p.q_norm[i];
    if (p.k_norm) ready.norms[1][i] = p.k_norm[i];
  }
  const int team = thread / kAttentionThreads, own = thread % kAttentionThreads;
  if (team >= kPieceTeams) return;
  for (int i = 0; i < AttentionReady::kPieces && share.begin + team + i * kPieceTeams < share.end;
       ++i) {
    const PieceRows rows = piece_rows(phase, ready, team, i);
    for (const bool keys : {true, false}) {
      const auto bytes = static_cast<int>(kPiece * (keys ? rows.key_bytes : rows.value_bytes));
      const std::byte* from = keys ? rows.keys : rows.values;
      for (int at = own * 128; at < bytes; at += kAttentionThreads * 128) prefetch_l2(from + at);
    }
  }
}

template <KvType kType, int kQuarter, int kHalves>
__device__ void attention_walk(const AttentionPhase& phase, const AttentionReady& ready, uint4* q,
                               float* scratch, float2 (&sums)[kPieceTeams][kAttentionRows]) {
  const CudaAttentionArgs& a = phase.args;
  const AttentionShare& share = ready.share;
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32;
  const int team = thread / kAttentionThreads, warp = thread / 32 % 4, g = lane / 4;
  const int group = a.attrs.heads / a.attrs.kv_heads, chunks = a.attrs.key_dim / 32;
  auto* scores = reinterpret_cast<float(*)[kAttentionRows][kScorePitch]>(
      scratch + (kAttentionRows + 1) * a.attrs.key_dim);
  const bool works = team < kPieceTeams;
  AttentionSums<kType, kQuarter, kHalves> own;
  const int seen[2] = {g < group ? share.position + 1 : 0, g + 8 < group ? share.position + 1 : 0};
  for (int i = 0; works && share.begin + team + i * kPieceTeams < share.end; ++i) {
    own.add(q, chunks, scores[team], piece_rows(phase, ready, team, i),
            (share.begin + team + i * kPieceTeams) * kPiece, seen, warp, lane,
            [&] { meet_team(team); });
  }
  meet_warps();  // all teams are done with the scores
#pragma unroll
  for (int r = 0; r < kHalves; ++r) {
    const int row = g + 8 * r;
    if (row >= group || !works) continue;
    own.write(r, 1, scratch + (team * group + row) * a.attrs.value_dim, warp, lane);
    if (warp == 0 && lane % 4 == 0) sums[team][row] = {own.largest[r], own.total[r]};
  }
}

// `count` parts of an element, with their largest scores and totals in shared memory: the
// element, not yet divided, and its own largest score and total.
template <class Values>
__device__ __forceinline__ float merge(int count, const float2* sums, int stride, Values values,
                                       float2& all) {
  float largest = -INFINITY;
#pragma unroll 4
  for (int i = 0; i < count; ++i) largest = fmaxf(largest, sums[i * stride].x);
  float total = 0, value = 0;
#pragma unroll 8
  for (int i = 0; i < count; ++i) {
    const float2 part = sums[i * stride];
    const float weight = part.y > 0 ? __expf(part.x - largest) : 0;  // 0: a part without positions
    total = fmaf(weight, part.y, total);
    value = fmaf(weight, values(i), value);
  }
  all = {largest, total};
  return value;
}

// After prepare_attention, and once before begin_attention. `scratch`: attention_phase_bytes() of
// shared memory.
__device__ inline void attention_phase(const AttentionPhase& phase, const AttentionReady& ready,
                                       uint4* scratch) {
  __shared__ float2 sums[kPieceTeams][kAttentionRows];
  const AttentionShare& share = ready.share;
  if (share.begin == share.end) return;
  const CudaAttentionArgs& a = phase.args;
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
  const int group = a.attrs.heads / a.attrs.kv_heads, chunks = a.attrs.key_dim / 32;
  const int key_dim = a.attrs.key_dim, value_dim = a.attrs.value_dim;
  const int head0 = share.kv_head * group;

  uint4* q = scratch;
  float* heads = reinterpret_cast<float*>(q + chunks * kAttentionRows * 4);  // [row][key_dim]
  const auto turn = [&](int i) { return ready.turns[i]; };
  // Rows past the group's heads stay as they are: no other row's result depends on them.
  for (int row = warp; row < group; row += kPersistentWarps) {
    float* head = heads + row * key_dim;
    prepare_head(a.q + (head0 + row) * key_dim, key_dim,
                 a.prepare.q_norm ? ready.norms[0] : nullptr, a.prepare.q_eps, a.prepare.rope, head,
                 lane, turn);
    for (int i = lane; i < 4 * chunks; i += 32)
      put_query(q, row, i / 4, i % 4, head + 8 * i, a.attrs.scale);
  }
  // The new key and value, by the block that reads them.
  if (share.split == share.used - 1 && !ready.padding && warp >= kPersistentWarps - 2) {
    const bool is_key = warp == kPersistentWarps - 1;
    const int dim = is_key ? key_dim : value_dim;
    const KvLayout& layout = a.kv.layout;
    const int row = share.position % static_cast<int>(layout.block_tokens);
    std::byte* const slot = a.kv.pool + ready.new_block * a.kv.block_bytes + a.kv.slot_offset;
    std::byte* const to = slot + (is_key ? layout.key_offset(share.kv_head, row)
                                         : layout.value_offset(share.kv_head, row));
    const float* x = a.prepare.value + share.kv_head * value_dim;
    if (is_key) {
      float* key = heads + kAttentionRows * key_dim;
      prepare_head(a.prepare.key + share.kv_head * key_dim, key_dim,
                   a.prepare.k_norm ? ready.norms[1] : nullptr, a.prepare.k_eps, a.prepare.rope,
                   key, lane, turn);
      x = key;
    }
    for (int i = lane; i < (dim + 31) / 32 * 32; i += 32) {
      store_piece(layout.type, x, i, dim, to);
    }
  }
  meet_warps();
  const auto walk = [&]<KvType kType, int kQuarter> {
    group > 8 ? attention_walk<kType, kQuarter, 2>(phase, ready, q, heads, sums)
              : attention_walk<kType, kQuarter, 1>(phase, ready, q, heads, sums);
  };
  const bool halves = a.kv.layout.type == KvType::F16;
  if (value_dim == 64) {
    halves ? walk.template operator()<KvType::F16, 16>()
           : attention_walk<KvType::Q8_0, 16, 2>(phase, ready, q, heads, sums);
  } else {
    halves ? walk.template operator()<KvType::F16, 32>()
           : attention_walk<KvType::Q8_0, 32, 2>(phase, ready, q, heads, sums);
  }
  meet_warps();

  const bool alone = share.used == 1;
  for (int i = thread; i < group * value_dim; i += kPersistentThreads) {
    const int row = i / value_dim, d = i - row * value_dim, head = head0 + row;
    float2 all;
    const float value = merge(
        kPieceTeams, &sums[0][row], kAttentionRows,
        [&](int team) { return heads[(team * group + row) * value_dim + d]; }, all);
    if (alone) {
      a.y[head * value_dim + d] = all.y > 0 ? value / all.y : 0;
      continue;
    }
    const int64_t part = int64_t{head} * phase.splits + share.split;
    phase.values[part * value_dim + d] = value;
    if (d == 0) reinterpret_cast<float2*>(phase.sums)[part] = all;
  }
  if (alone) return;
  meet_warps();
  const auto used = static_cast<uint32_t>(share.used);
  const bool last = thread == 0 && count_ended(phase.ended + share.kv_head) + 1 == used;
  if (!meet_warps_any(last)) return;
  if (thread == 0) phase.ended[share.kv_head] = 0;
  auto* parts = reinterpret_cast<float2*>(scratch);  // [row][used]
  for (int i = thread; i < group * share.used; i += kPersistentThreads) {
    const int row = i / share.used, split = i - row * share.used;
    parts[i] = __ldcg(reinterpret_cast<const float2*>(phase.sums) +
                      int64_t{head0 + row} * phase.splits + split);
  }
  meet_warps();
  for (int i = thread; i < group * value_dim; i += kPersistentThreads) {
    const int row = i / value_dim, d = i - row * value_dim, head = head0 + row;
    const float* values = phase.values + int64_t{head} * phase.splits * value_dim + d;
    float2 all;
    const float value = merge(
        share.used, parts + row * share.used, 1,
        [&](int split) { return __ldcg(values + split * value_dim); }, all);
    a.y[head * value_dim + d] = all.y > 0 ? value / all.y : 0;
  }
}

#endif

}  // namespace ktx::kernels

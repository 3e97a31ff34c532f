// Attention of tokens that are generated, one of a sequence, with all that stands before it (head
// norms, rope, store) in the launch (sm_90).
//
// A block has a KV head and up to eight query heads, and of what is seen pieces of 16 positions: a
// warp a piece, and the next one 16 pieces on. Norms, frequencies and what the cache holds of the
// first round are on their way, or there, before the kernel ahead has ended: it writes q, k and v
// alone. (Positions, tables and the cache's old rows are written by other steps' copies and
// kernels, which a copy divides from this one's.) Then
//
//   heads    a warp a query head; in the block that has the new position also its key and value
//   walk     attention_decode.cuh, every warp for itself
//   merge    of the warps in shared memory
//
// Several tokens may be of one sequence (draft tokens that are verified): a block has one of them,
// and makes the new keys and values that its pieces need of those before it itself, since other
// blocks write theirs at the same time.
//
// Where up to eight blocks have a piece for every warp they are a cluster, of which those without a
// piece end at once; each head is merged in the shared memory of the block that writes it. Behind
// more positions the blocks fill the GPU instead (clusters of them do not: processors that share a
// cluster are no multiple of it), and merge_decode puts their parts together.
//
// Roofline: at short pasts the latency of this chain (q from L2, two barriers of the block, one
// trip through the cluster) and of its instructions, which are met cold; behind some thousand
// positions the bytes of the cache. SM occupancy: a block of 16 warps, beside one of a product.
// Heads of 256 have pieces of 16 KiB, of which an SM takes eight.
#include "kernels/cuda/attention/attention_decode.cuh"
#include "kernels/cuda/attention/attention_decode_heads.cuh"
#include "kernels/cuda/attention/split_kv.cuh"
#include "kernels/cuda/common/bulk_copy.cuh"
#include "kernels/cuda/common/cluster_stores.cuh"

namespace ktx::kernels {
namespace {

constexpr int kWarps = 16, kThreads = 32 * kWarps;
constexpr int kMostBlocks = 8, kShare = 8;  // of a cluster, and the pieces of one of them
// Warps of a block that walk a deep past.
constexpr int walkers(int dim) {
  return dim > 128 ? kShare : kWarps;
}
// Blocks that write units of a merge, so many of them being a cluster: a power of two.
constexpr int log_writers_of(int blocks) {
  return blocks >= 8 ? 3 : blocks >= 4 ? 2 : blocks >= 2 ? 1 : 0;
}
// Parts of heads that one of them gathers at most: those of all blocks for the units that it
// writes.
constexpr int most_parts(int dim) {
  const int units = kOneHeads / 2 * (dim / 64);
  int most = 0;
  for (int blocks = 2; blocks <= kMostBlocks; ++blocks) {
    const int writers = 1 << log_writers_of(blocks);
    const int parts = blocks * ((units + writers - 1) / writers);
    most = parts > most ? parts : most;
  }
  return most;
}
// Longer ones go to attention_tiles.cu. (H200, 32/8 heads, F16, us here and there: 8,100
// positions 11.7 and 26, 16,000 20.0 and 43. Beyond, and Q8_0 beyond 4,096, was not measured.)
constexpr int64_t kMostPositions = 1 << 20, kMostPositionsQ8 = 1 << 20;
constexpr int kMostSplits = 64, kMergeWarps = 8;

// The pieces that a token sees, from number `before` on.
struct Pieces {
  int from, before, count;
  __device__ __forceinline__ Pieces(const DecodeArgs& a, int position) : from(0) {
    if (__builtin_expect(a.window > 0 && position > 0, 0)) {
      from = a.chunked ? position / a.window * a.window : max(0, position - a.window + 1);
    }
    before = from >> kLogPiece;
    count = ((position + kOnePiece) >> kLogPiece) - before;
  }
  // For deep pasts: the number of splits that have pieces, which come first, and the first piece of
  // a split. No split has two pieces more than another.
  __device__ __forceinline__ int splits(const DecodeArgs& a) const { return min(a.splits, count); }
  __device__ __forceinline__ int first_of(int split, const DecodeArgs& a) const {
    if (count <= a.splits) return min(split, count);
    return static_cast<int>(uint64_t{static_cast<uint32_t>(split * count)} * a.inverse_splits >>
                            31);
  }
};

// What is computed from it is computed anew: loops would keep it in registers that there are not.
__device__ __forceinline__ void forget(int& value) {
  asm volatile("" : "+r"(value));
}

// What a block needs behind its walk: kept in shared memory meanwhile where registers are few.
struct OwnPart {
  int token, rank, head0, group, live;
};

// kFew: tokens of the launch may be of one sequence, side by side and in rising positions, and see
// each other's keys and values: every block that needs them makes them itself.
template <KvType kType, int kDim, bool kInterleaved, bool kDeep, bool kFew>
__global__ void __launch_bounds__(kThreads, kDim > 128 ? 1 : 2)
    attention_decode(const __grid_constant__ DecodeArgs a) {
#if __CUDA_ARCH__ >= 900
  using Piece = KvPiece<kType, kDim>;
  using Parts = OneParts<kDim>;
  // Units of a merge: two heads, 64 elements.
  constexpr int kHalves = kDim / 64;
  constexpr int kWalkers = kDeep ? walkers(kDim) : kShare;
  constexpr int kPieceBytes = Piece::kBytes > Parts::kBytes ? Piece::kBytes : Parts::kBytes;
  // A piece for each walking warp, later its sums; then, from all blocks of the cluster, the values
  // of the units that this block writes: [block][unit].
  extern __shared__ __align__(128) uint4 memory[];
  auto* block_values = reinterpret_cast<float4(*)[32]>(memory + kWalkers * kPieceBytes / 16);
  __shared__ float4 warp_sums[kWarps][kOneHeads / 2];
  constexpr int kFresh = kFew ? kFewTokens : 1;
  __shared__ OneHeads<kDim, kFresh> heads;
  __shared__ OwnPart kept;
  __shared__ float4 block_sums[kDeep ? 1 : most_parts(kDim)];  // likewise
  __shared__ uint64_t blocks_there;
  let_next_kernel_start();
  int lane = static_cast<int>(threadIdx.x % 32);
  const int warp = static_cast<int>(threadIdx.x / 32);
  const int token = static_cast<int>(blockIdx.z), rank = static_cast<int>(blockIdx.x);

  // What no kernel of this step writes.
  const int position = a.position[token], sequence = a.sequence[token];
  // Most often that of the first sequence: where the first round's piece is, before it is known.
  const auto entry_of = [&](int piece) { return piece * kOnePiece >> a.log_block_tokens; };
  int early = 0;
  if (!kDeep) early = a.table[min(entry_of(rank * kShare + warp), a.table_stride - 1)];
  int kv_head = static_cast<int>(blockIdx.y), head_part = 0;
  if (__builtin_expect(a.group > kOneHeads, 0)) {
    const int parts = (a.group + kOneHeads - 1) / kOneHeads;
    head_part = kv_head % parts, kv_head /= parts;
  }
  OwnPart own_part;
  own_part.token = token, own_part.rank = rank;
  own_part.head0 = kv_head * a.group + head_part * kOneHeads;
  own_part.group = min(kOneHeads, a.group - head_part * kOneHeads);
  using Job = HeadJob<kType, kDim, kInterleaved, kFresh>;
  Job job(a, heads, own_part.group, warp, lane);
  int back = 0;  // tokens of the sequence right before this one
  if constexpr (kFew) {
    const int other = token - 1 - lane;
    bool same = other >= 0 && lane < kFewTokens - 1;
    if (same) {
      const int before = a.position[other];
      same = a.sequence[other] == sequence && before >= 0 && before == position - 1 - lane;
    }
    back = __ffs(~__ballot_sync(~0u, same)) - 1;
  }
  const int* table = a.table + sequence * a.table_stride;
  const Pieces seen(a, position);
  const int blocks = max(1, kDeep ? seen.splits(a) : (seen.count + kShare - 1) / kShare);
  if (rank >= blocks) return;  // the next kernel waits for those that wait
  const int first_piece = kDeep ? seen.first_of(rank, a) : rank * kShare;
  own_part.live = kDeep ? seen.first_of(rank + 1, a) - first_piece  // pieces of this block
                        : min(kShare, seen.count - first_piece);
  // The first position of the warp's piece, and where the block's end.
  const int end = (seen.before + first_piece + own_part.live) * kOnePiece;
  int at = (seen.before + first_piece + warp) * kOnePiece;
  if (kDeep && kWalkers < kWarps && warp >= kWalkers) at = end;
  const auto block_at = [&](int at) { return at < end ? table[at >> a.log_block_tokens] : 0; };
  int block = early;
  if (kDeep || sequence > 0 || seen.before > 0) block = block_at(at);
  const auto keys_at = [&](int at, int block) {
    return a.pool + block * a.block_bytes + kv_head * a.head_bytes +
           (at & ((1 << a.log_block_tokens) - 1)) * Piece::kCacheRow;
  };
  const uint32_t own = address_of(memory) + warp * kPieceBytes;
  const Piece piece(own);
  int next_block = 0;  // of the next round
  if (at < end) {
    const std::byte* keys = keys_at(at, block);
    if (kDeep) next_block = block_at(at + kWalkers * kOnePiece);
    piece.ask_keys(keys, lane);
    commit_async();
    // Values of deep pasts later: the kernel ahead still needs the memory.
    if (!kDeep) piece.ask_values(keys + a.value_bytes, position - back - at, lane);
    if (!kDeep) commit_async();
  }
  FreshRows fresh = {position >= 0 && rank == blocks - 1, token, position};
  if constexpr (kFew) {  // those from the block's first position on
    const int begin = (seen.before + first_piece) * kOnePiece;
    fresh.position = max(position - back, begin);
    fresh.token = token - (position - fresh.position);
    fresh.count = max(0, min(position + 1, end) - fresh.position);
  }
  // Unit u is written by block u % writers.
  const int units = (own_part.group + 1) / 2 * kHalves;
  const int log_writers = log_writers_of(blocks), writers = 1 << log_writers;
  const int slots = (units + writers - 1) >> log_writers;  // most units of a writer
  const int own_units = rank < writers ? (units - rank + writers - 1) >> log_writers : 0;
  const bool of_cluster = !kDeep && blocks > 1;
  if (of_cluster) {
    if (threadIdx.x == 0) {
      barrier_init(&blocks_there, 1);
      barrier_init_done();
      barrier_expect(&blocks_there, blocks * own_units * (32 * 16 + 16));
    }
    begin_in_cluster();
  }
  const int spared = a.time && position >= 0 ? position - a.time[token] : 0;
  job.turn_to(max(position, 0), spared, fresh);
  if (of_cluster) wait_after_arrival();  // all its blocks have begun
  wait_for_inputs();

  job.load(token, kv_head, own_part.head0);
  if (kDeep && at < end) {
    piece.ask_values(keys_at(at, block) + a.value_bytes, position - back - at, lane);
    commit_async();
  }
  job.finish();
  if constexpr (kFew) {
#pragma unroll 1
    for (int i = warp + kWarps; i < own_part.group + 2 * fresh.count; i += kWarps) {
      Job further(a, heads, own_part.group, i, lane);
      further.turn_to(position, spared, fresh);
      further.load(token, kv_head, own_part.head0);
      further.finish();
    }
  }
  if (kDeep && threadIdx.x == 0) kept = own_part;
  __syncthreads();

  if (at < end) {
    OneSums<kDim> sums;
#pragma unroll 1
    while (true) {
      if (kDeep) forget(lane);
      const int newest = position - at;  // its row in the piece
      const bool has_newest = newest < kOnePiece;
      // With few tokens: the rows of the piece that are new, and the number of the first one.
      const int first_row = max(fresh.position - at, 0), end_row = min(newest + 1, kOnePiece);
      const int first_fresh = at + first_row - fresh.position;
      std::byte* row = nullptr;  // of the cache
      wait_async<1>();
      __syncwarp();
      if (has_newest && head_part == 0) {
        row = const_cast<std::byte*>(keys_at(at, block)) + newest * Piece::kCacheRow;
      }
      if constexpr (kFew) {
#pragma unroll 1
        for (int i = first_row; i < end_row; ++i) {
          piece.put_key(i, address_of(heads.fresh[0][first_fresh + i - first_row]),
                        i == newest ? row : nullptr, lane);
        }
        __syncwarp();
      } else if (has_newest) {
        piece.put_key(newest, address_of(heads.fresh[0]), row, lane);
        __syncwarp();
      }
      piece.open_keys(lane);
      sums.add_keys(piece, address_of(heads.query), seen.from - at, newest + 1, a.softcap,
                    !kDeep || sums.none(), lane);
      at += kWalkers * kOnePiece;
      if (kDeep) forget(lane);
      const bool more = kDeep && at < end;
      if (more) {
        __syncwarp();
        block = next_block;
        next_block = block_at(at + kWalkers * kOnePiece);
        piece.ask_keys(keys_at(at, block), lane);
      }
      if (kDeep) commit_async();
      kDeep ? wait_async<1>() : wait_async<0>();
      __syncwarp();
      if (kDeep) forget(lane);
      if (row) row += a.value_bytes;
      if constexpr (kFew) {
#pragma unroll 1
        for (int i = first_row; i < end_row; ++i) {
          piece.put_value(i, address_of(heads.fresh[1][first_fresh + i - first_row]),
                          i == newest ? row : nullptr, lane);
        }
        __syncwarp();
      } else if (has_newest) {
        piece.put_value(newest, address_of(heads.fresh[1]), row, lane);
        __syncwarp();
      }
      piece.open_values(lane);
      sums.add_values(piece, lane);
      __syncwarp();
      if (!more) break;
      piece.ask_values(keys_at(at, block) + a.value_bytes, position - back - at, lane);
      commit_async();
    }
    Parts::put(sums, own, address_of(warp_sums[warp]), kDeep ? kept.group : own_part.group, lane);
  }
  __syncthreads();
  if (kDeep) own_part = kept;
  // A warp has a unit: first of the block's warps, then of the cluster's blocks.
  const auto write = [&](int unit, const TwoHeads& sum) {
    const int head = own_part.head0 + unit / kHalves * 2, element = unit % kHalves * 64 + 2 * lane;
    const bool second = head + 1 < own_part.head0 + own_part.group;
    if (kDeep && a.splits > 1) {
      const int part = (own_part.token * a.heads + head) * a.splits + own_part.rank;
      auto* values = reinterpret_cast<float2*>(a.part_values + int64_t{part} * kDim + element);
      values[0] = {sum.v.x, sum.v.z};
      if (second) values[a.splits * kDim / 2] = {sum.v.y, sum.v.w};
      if (unit % kHalves == 0 && lane % 16 == 0 && (lane == 0 || second)) {
        a.part_sums[part + lane / 16 * a.splits] = {sum.largest, sum.total};
      }
      return;
    }
    float total = sum.total;
    if (a.sinks && (lane < 16 || second)) {
      total += exp2_short(a.sinks[head + lane / 16] * 1.44269504f - sum.largest);
    }
    const float own_factor = total > 0 ? __fdividef(1, total) : 0;
    const float factor[2] = {__shfl_sync(~0u, own_factor, 0), __shfl_sync(~0u, own_factor, 16)};
    auto* y = reinterpret_cast<float2*>(a.y + own_part.token * a.y_stride + head * kDim + element);
    y[0] = {sum.v.x * factor[0], sum.v.z * factor[0]};
    if (second) y[kDim / 2] = {sum.v.y * factor[1], sum.v.w * factor[1]};
  };
  if (warp >= (own_part.group + 1) / 2 * kHalves) return;
  TwoHeads sum;
  sum.merge<kWalkers>(min(own_part.live, kWalkers), address_of(&warp_sums[0][warp / kHalves]),
                      kOneHeads / 2 * 16,
                      address_of(memory) + warp / kHalves * Parts::kPitch + warp % kHalves * 512,
                      kPieceBytes, lane);
  if (!of_cluster) return write(warp, sum);
  const int to = warp & (writers - 1), slot = own_part.rank * slots + (warp >> log_writers);
  store_of_rank(&block_values[slot][lane], sum.v, to, &blocks_there);
  if (lane % 16 == 0) {
    store_of_rank(reinterpret_cast<float2*>(&block_sums[slot]) + lane / 16,
                  float2{sum.largest, sum.total}, to, &blocks_there);
  }
  if (warp >= own_units) return;
  barrier_wait(&blocks_there, 0);
  TwoHeads all;
  all.merge<kMostBlocks>(blocks, address_of(&block_sums[warp]), slots * 16,
                         address_of(&block_values[warp]), slots * 512, lane);
  write((warp << log_writers) + own_part.rank, all);
#endif
}

// The parts of a head, by one block: a warp has every kMergeWarps-th split, a lane some elements.
template <int kDim>
__global__ void __launch_bounds__(32 * kMergeWarps)
    merge_decode(const __grid_constant__ DecodeArgs a) {
#if __CUDA_ARCH__ >= 900
  constexpr int kMost = kMostSplits / kMergeWarps, kRounds = (kDim + 127) / 128;
  __shared__ float4 sums[kMergeWarps][32 * kRounds];
  let_next_kernel_start();
  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
  const int head = static_cast<int>(blockIdx.x), token = static_cast<int>(blockIdx.y);
  const int splits = Pieces(a, a.position[token]).splits(a);
  const float sink = a.sinks ? a.sinks[head] * 1.44269504f : -INFINITY;
  wait_for_inputs();
  const int part = (token * a.heads + head) * a.splits;
  float2 own[2] = {{-1e30f, 0}, {-1e30f, 0}};
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    if (lane + 32 * i < splits) own[i] = __ldcg(a.part_sums + part + lane + 32 * i);
  }
  float4 x[kRounds][kMost] = {};
  const auto* values = reinterpret_cast<const float4*>(a.part_values + int64_t{part} * kDim) + lane;
#pragma unroll
  for (int i = 0; i < kMost; ++i) {
    const int split = warp + i * kMergeWarps;
#pragma unroll
    for (int r = 0; r < kRounds; ++r) {
      if (split < splits && 32 * r + lane < kDim / 4) {
        x[r][i] = __ldcg(values + split * (kDim / 4) + 32 * r);
      }
    }
  }
  const float largest = warp_max(fmaxf(own[0].x, own[1].x));
  const float weight[2] = {exp2_short(own[0].x - largest), exp2_short(own[1].x - largest)};
  const float total =
      warp_sum(weight[0] * own[0].y + weight[1] * own[1].y) + exp2_short(sink - largest);
  float4 v[kRounds] = {};
#pragma unroll
  for (int i = 0; i < kMost; ++i) {
    const int split = warp + i * kMergeWarps;
    const float w = __shfl_sync(~0u, weight[i * kMergeWarps / 32], split % 32);
#pragma unroll
    for (int r = 0; r < kRounds; ++r) {
      v[r].x = fmaf(w, x[r][i].x, v[r].x), v[r].y = fmaf(w, x[r][i].y, v[r].y);
      v[r].z = fmaf(w, x[r][i].z, v[r].z), v[r].w = fmaf(w, x[r][i].w, v[r].w);
    }
  }
#pragma unroll
  for (int r = 0; r < kRounds; ++r) sums[warp][32 * r + lane] = v[r];
  __syncthreads();
  const int element = static_cast<int>(threadIdx.x);
  if (element >= kDim) return;
  float all = 0;
#pragma unroll
  for (int w = 0; w < kMergeWarps; ++w) all += reinterpret_cast<const float*>(sums[w])[element];
  a.y[token * a.y_stride + head * kDim + element] = total > 0 ? __fdividef(all, total) : 0;
#endif
}

bool power_of_two(int64_t n) {
  return n > 0 && (n & (n - 1)) == 0;
}
int log_of(int64_t n) {
  int log = 0;
  while ((int64_t{1} << log) < n) ++log;
  return log;
}

bool is_deep(const CudaAttentionArgs& a) {
  return seen_positions(a, kOnePiece) > kMostBlocks * kShare * kOnePiece;
}
// For deep pasts: as many splits as give each SM a block.
int deep_splits(const CudaAttentionArgs& a) {
  const int64_t blocks = a.tokens * a.attrs.kv_heads * head_parts(a.attrs);
  const int64_t splits = sm_count() / (blocks > 0 ? blocks : 1);
  return static_cast<int>(splits < 1 ? 1 : splits < kMostSplits ? splits : kMostSplits);
}
int64_t sums_bytes(const CudaAttentionArgs& a) {
  return ceil_div<int64_t>(a.tokens * a.attrs.heads * deep_splits(a) * 8, 256) * 256;
}

template <KvType kType, int kDim, bool kInterleaved, bool kDeep, bool kFew>
Status launch_one(const CudaAttentionArgs& a, DecodeArgs& args, cudaStream_t stream) {
  using Piece = KvPiece<kType, kDim>;
  using Parts = OneParts<kDim>;
  constexpr int kPieceBytes = Piece::kBytes > Parts::kBytes ? Piece::kBytes : Parts::kBytes;
  // (At least what makes launch_clusters ask for all that there is: kFew has 20 KiB fixed.)
  constexpr int kMemory =
      kDeep ? walkers(kDim) * kPieceBytes : kShare * kPieceBytes + most_parts(kDim) * 32 * 16;
  constexpr int kShared = kFew && kMemory <= 40 * 1024 ? 41 * 1024 : kMemory;
  int blocks, cluster = 1;
  if (kDeep) {
    args.splits = blocks = deep_splits(a);
    args.inverse_splits = ((1u << 31) + args.splits - 1) / static_cast<uint32_t>(args.splits);
    args.part_sums = reinterpret_cast<float2*>(a.workspace);
    args.part_values = reinterpret_cast<float*>(a.workspace + sums_bytes(a));
  } else {
    const int64_t spans = ceil_div<int64_t>(seen_positions(a, kOnePiece), kShare * kOnePiece);
    blocks = cluster = static_cast<int>(spans < 1 ? 1 : spans);
  }
  const dim3 grid(static_cast<unsigned>(blocks),
                  static_cast<unsigned>(a.attrs.kv_heads * head_parts(a.attrs)),
                  static_cast<unsigned>(a.tokens));
  return launch_clusters("attention", attention_decode<kType, kDim, kInterleaved, kDeep, kFew>,
                         grid, cluster, kThreads, kShared, stream, args);
}

template <KvType kType, int kDim, bool kFew>
Status launch_kind(const CudaAttentionArgs& a, DecodeArgs& args, cudaStream_t stream) {
  const bool interleaved = a.prepare.rope.interleaved != 0;
  if (!is_deep(a)) {
    return interleaved ? launch_one<kType, kDim, true, false, kFew>(a, args, stream)
                       : launch_one<kType, kDim, false, false, kFew>(a, args, stream);
  }
  KTX_TRY((interleaved ? launch_one<kType, kDim, true, true, kFew>(a, args, stream)
                       : launch_one<kType, kDim, false, true, kFew>(a, args, stream)));
  if (args.splits == 1) return {};
  const dim3 grid(static_cast<unsigned>(a.attrs.heads), static_cast<unsigned>(a.tokens));
  return launch("attention: merge", merge_decode<kDim>, grid, 32 * kMergeWarps, 0, stream, args);
}

template <KvType kType, int kDim>
Status launch_tokens(const CudaAttentionArgs& a, DecodeArgs& args, cudaStream_t stream) {
  return a.one_token_per_sequence ? launch_kind<kType, kDim, false>(a, args, stream)
                                  : launch_kind<kType, kDim, true>(a, args, stream);
}

template <KvType kType>
Status launch_heads(const CudaAttentionArgs& a, DecodeArgs& args, cudaStream_t stream) {
  switch (a.attrs.key_dim) {
    case 64:
      return launch_tokens<kType, 64>(a, args, stream);
    case 128:
      return launch_tokens<kType, 128>(a, args, stream);
    default:
      return launch_tokens<kType, 256>(a, args, stream);
  }
}

bool even(const float* p, int64_t stride) {
  return reinterpret_cast<uintptr_t>(p) % 8 == 0 && stride % 2 == 0;
}

}  // namespace

bool attention_decode_takes(const CudaAttentionArgs& a) {
  const CudaAttentionPrepare& p = a.prepare;
  const int dim = a.attrs.key_dim;
  const bool halves = a.kv.layout.type == KvType::F16;
  return seen_positions(a, kOnePiece) <= (halves ? kMostPositions : kMostPositionsQ8) && p.key &&
         (a.one_token_per_sequence || a.tokens <= kFewTokens) && !a.attrs.value_in_key &&
         (dim == 64 || dim == 128 || dim == 256) && a.attrs.value_dim == dim &&
         a.kv.layout.type != KvType::F32 && a.kv.layout.block_tokens >= kOnePiece &&
         power_of_two(a.kv.layout.block_tokens) && p.rope.rotary_begin + p.rope.rotary_dim <= dim &&
         even(a.q, a.q_stride) && even(p.key, p.key_stride) && even(p.value, p.value_stride) &&
         even(p.q_norm, 0) && even(p.k_norm, 0) && even(a.y, a.y_stride) &&
         compute_capability() >= 90;
}

int64_t attention_decode_workspace(const CudaAttentionArgs& a) {
  if (!is_deep(a) || deep_splits(a) == 1) return 0;
  return sums_bytes(a) + a.tokens * a.attrs.heads * deep_splits(a) * a.attrs.value_dim * 4;
}

Status launch_attention_one(const CudaAttentionArgs& a, cudaStream_t stream) {
  const CudaAttentionPrepare& p = a.prepare;
  const KvLayout& layout = a.kv.layout;
  constexpr float kLog2E = 1.44269504f;
  DecodeArgs args = {};
  args.time = p.time;
  args.position = a.kv.position, args.sequence = a.kv.sequence, args.table = a.kv.table;
  args.table_stride = static_cast<int>(a.kv.table_stride);
  args.log_block_tokens = log_of(layout.block_tokens);
  args.pool = a.kv.pool + a.kv.slot_offset;
  args.block_bytes = a.kv.block_bytes;
  args.head_bytes = static_cast<int>(layout.key_offset(1, 0));
  args.value_bytes = static_cast<int>(layout.value_offset(0, 0));
  args.group = a.attrs.heads / a.attrs.kv_heads, args.heads = a.attrs.heads;
  args.window = a.attrs.window, args.chunked = a.attrs.chunked;
  args.scale = a.attrs.scale * kLog2E, args.softcap = a.attrs.softcap * kLog2E;
  args.q = a.q, args.key = p.key, args.value = p.value, args.y = a.y;
  args.q_stride = static_cast<int>(a.q_stride), args.y_stride = static_cast<int>(a.y_stride);
  args.key_stride = static_cast<int>(p.key_stride);
  args.value_stride = static_cast<int>(p.value_stride);
  args.q_norm = p.q_norm, args.k_norm = p.k_norm, args.q_eps = p.q_eps, args.k_eps = p.k_eps;
  args.inv_freq = p.inv_freq, args.mscale = p.rope.mscale, args.sinks = a.sinks;
  args.rotary_begin = p.rope.rotary_begin, args.rotary_dim = p.rope.rotary_dim;
  return layout.type == KvType::F16 ? launch_heads<KvType::F16>(a, args, stream)
                                    : launch_heads<KvType::Q8_0>(a, args, stream);
}

}  // namespace ktx::kernels

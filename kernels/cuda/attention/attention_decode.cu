// Attention of tokens that are generated, one of a sequence, with all that stands before it (head
// norms, rope, store) and the merge behind it in one launch (sm_90).
//
// A cluster of blocks has a KV head and up to eight query heads. Warp w of block r takes positions
// 16 * (8 * r + w) and on, and those a round of the cluster later; blocks that have none end at
// once. Cosines, norms and what the cache holds of the first round are on their way, or there,
// before the kernel ahead has ended: it writes q, k and v alone. (Positions, tables and the cache's
// old rows are written by other steps' copies and kernels, which a copy divides from this one's.)
// Then
//
//   heads    a warp a query head; in the block that has the new position also its key and value
//   walk     attention_decode.cuh, every warp for itself
//   merge    of the warps in shared memory; of the blocks in that of the block which writes a head
//
// Roofline: at short pasts the latency of this chain (q from L2, two barriers of the block, one of
// the cluster); behind some thousand positions the bytes of the cache.
#include "kernels/cuda/attention/attention_decode.cuh"
#include "kernels/cuda/attention/attention_decode_heads.cuh"
#include "kernels/cuda/attention/split_kv.cuh"

namespace ktx::kernels {
namespace {

constexpr int kWarps = 8, kThreads = 32 * kWarps;
constexpr int kMostBlocks = 8;  // of a cluster; twice as many behind more than 1024 positions
constexpr int kMostParts = 16;  // blocks of a cluster times the heads that one of them writes
// Longer ones go in splits over the whole GPU (attention_tiles.cu). H200, 32/8 heads, us here and
// there: F16 2048 7.1, 15.3; 8192 17.2, 24.1; 16384 31.3, 39.5. Q8_0 2048 9.4, 15.2;
// 4096 17.4, 16.7.
constexpr int64_t kMostPositions = 16384, kMostPositionsQ8 = 4096;

template <KvType kType, int kDim>
__global__ void __launch_bounds__(kThreads, 2)
    attention_decode(const __grid_constant__ CudaAttentionArgs a, int cluster) {
  extern __shared__ float4 warp_values[];
  __shared__ float2 warp_sums[kWarps * kOneHeads];
  __shared__ OneHeads<kDim, kWarps> heads;
  // Of the blocks of the cluster, for the heads that this one writes: [block][head].
  __shared__ float block_values[kMostParts][kDim];
  __shared__ float block_sums[kMostParts][2];
  let_next_kernel_start();
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
  const int rank = static_cast<int>(blockIdx.x) % cluster, token = static_cast<int>(blockIdx.y);
  const int all = a.attrs.heads / a.attrs.kv_heads, head_part = static_cast<int>(blockIdx.z);
  const int kv_head = static_cast<int>(blockIdx.x) / cluster;
  const int head0 = kv_head * all + head_part * kOneHeads;
  const int group = min(kOneHeads, all - head_part * kOneHeads);
  const CudaKvView& kv = a.kv;

  // What no kernel of this step writes.
  const int position = kv.position[token], sequence = kv.sequence[token];
  const int count = position + 1;  // the end of what is seen
  const int from = first_seen(a.attrs, max(position, 0)), before = from / kOnePiece;
  const int pieces = (count + kOnePiece - 1) / kOnePiece - before;  // those that are seen
  const int used = max(1, min(cluster, (pieces + kWarps - 1) / kWarps));
  if (rank >= used) return;  // the next kernel waits for those that wait
  if (used > 1) begin_in_cluster();
  int piece = rank * kWarps + warp;
  const int live = min(kWarps, pieces - rank * kWarps);  // warps that have a piece
  // Lane i looks up where the piece of round i is.
  const int step = cluster * kWarps, own_piece = piece + lane * step;
  int block = 0;
  if (own_piece < pieces) block = cache_block(kv, sequence, (before + own_piece) * kOnePiece);
  const auto rows_of = [&](int round) {
    const int at = (before + rank * kWarps + warp + round * step) * kOnePiece;
    return kv_rows_at(kv, __shfl_sync(~0u, block, round), kv_head, at);
  };
  KvPiece<kType, kDim> own;
  if (warp < live) own.load(rows_of(0), position - (before + piece) * kOnePiece, lane);
  const bool fresh = position >= 0 && rank == (pieces - 1) / kWarps % cluster;
  std::byte *key_row = nullptr, *value_row = nullptr;
  if (fresh && head_part == 0) {
    const KvRows rows = kv_rows_at(kv, cache_block(kv, sequence, position), kv_head, position);
    key_row = const_cast<std::byte*>(rows.keys), value_row = const_cast<std::byte*>(rows.values);
  }
  constexpr int kJobs = (kOneHeads + 2 + kWarps - 1) / kWarps;
  HeadJobs<kType, kDim, kWarps, kJobs> jobs(a, heads, token, max(position, 0), kv_head, head0,
                                            group, fresh, warp, lane);
  wait_for_inputs();

  jobs.load();
  jobs.finish(key_row, value_row);
  __syncthreads();

  OneSums<kDim> sums;
  const OneParts<kDim> parts{reinterpret_cast<float*>(warp_values), warp_sums};
  if (warp < live) {
    for (int i = 1;; ++i) {
      const int first = (before + piece) * kOnePiece;
      if (position - first < kOnePiece) {
        own.put(position - first, heads.row(0), heads.row(1), lane);
      }
      sums.add(own, heads.query, from - first, count - first, a.attrs.softcap, lane);
      piece += step;
      if (piece >= pieces) break;
      own.load(rows_of(i), position - (before + piece) * kOnePiece, lane);
    }
    parts.put(sums, warp, group, lane);
  }
  __syncthreads();
  if (used > 1) await_cluster();  // all its blocks have begun
  float* y = a.y + token * a.y_stride + head0 * kDim;
  for (int i = thread; i < group * kDim; i += kThreads) {
    const int head = i / kDim, element = i % kDim;
    float2 sum;
    const float v = merge_ones(
        live, [&](int w) { return warp_sums[w * group + head]; },
        [&](int w) {
          return parts.values[(w * group + head) * OneParts<kDim>::kHeadPitch +
                              OneParts<kDim>::index(element)];
        },
        sum);
    if (used == 1) {
      y[i] = finished(a, head0 + head, v, sum.x, sum.y);
      continue;
    }
    // Block head % used writes this head.
    const int slots = (group + used - 1) / used, at = rank * slots + head / used;
    store_of_rank(&block_values[at][element], head % used, v);
    if (element < 2) store_of_rank(&block_sums[at][element], head % used, element ? sum.y : sum.x);
  }
  if (used == 1) return;
  arrive_at_cluster();
  await_cluster();
  const int slots = (group + used - 1) / used;
  for (int i = thread; i < slots * kDim; i += kThreads) {
    const int slot = i / kDim, head = slot * used + rank, element = i % kDim;
    if (head >= group) continue;
    float2 sum;
    const float v = merge_ones(
        used,
        [&](int r) {
          return float2{block_sums[r * slots + slot][0], block_sums[r * slots + slot][1]};
        },
        [&](int r) { return block_values[r * slots + slot][element]; }, sum);
    y[head * kDim + element] = finished(a, head0 + head, v, sum.x, sum.y);
  }
}

// The answer must not depend on what was launched before (the sums' order depends on it), and the
// question must not forbid what is launched later: `shared` is that of most heads.
template <class... Params>
bool takes_clusters(void (*kernel)(Params...), int cluster, int shared) {
  cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared);
  cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
  cudaLaunchAttribute clusters = {};
  clusters.id = cudaLaunchAttributeClusterDimension;
  clusters.val.clusterDim = {static_cast<unsigned>(cluster), 1, 1};
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(cluster));
  config.blockDim = dim3(kThreads);
  config.dynamicSmemBytes = static_cast<size_t>(shared);
  config.attrs = &clusters;
  config.numAttrs = 1;
  int count = 0;
  if (cudaOccupancyMaxActiveClusters(&count, kernel, &config) == cudaSuccess) return count > 0;
  cudaGetLastError();  // of the question
  return false;
}

template <KvType kType, int kDim>
Status launch_one(const CudaAttentionArgs& a, cudaStream_t stream) {
  const int all = a.attrs.heads / a.attrs.kv_heads, group = all < kOneHeads ? all : kOneHeads;
  constexpr int kHeadBytes = kWarps * OneParts<kDim>::kHeadPitch * 4;
  const int64_t spans = ceil_div<int64_t>(seen_positions(a, kOnePiece), kWarps * kOnePiece);
  // Sixteen blocks are more than every GPU promises, so it is asked.
  const auto kernel = attention_decode<kType, kDim>;
  int most = kMostBlocks;
  if (spans > most && takes_clusters(kernel, 2 * most, kOneHeads * kHeadBytes)) most *= 2;
  const int cluster = static_cast<int>(spans < 1 ? 1 : spans < most ? spans : most);
  const dim3 grid(static_cast<unsigned>(a.attrs.kv_heads * cluster),
                  static_cast<unsigned>(a.tokens), static_cast<unsigned>(head_parts(a.attrs)));
  return launch_clusters("attention", kernel, grid, cluster, kThreads, group * kHeadBytes, stream,
                         a, cluster);
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
         a.one_token_per_sequence && !a.attrs.value_in_key && (dim == 64 || dim == 128) &&
         a.attrs.value_dim == dim && a.kv.layout.type != KvType::F32 &&
         a.kv.layout.block_tokens % kOnePiece == 0 &&
         p.rope.rotary_begin + p.rope.rotary_dim <= dim && even(a.q, a.q_stride) &&
         even(p.key, p.key_stride) && even(p.value, p.value_stride) && even(p.q_norm, 0) &&
         even(p.k_norm, 0) && compute_capability() >= 90;
}

Status launch_attention_one(const CudaAttentionArgs& a, cudaStream_t stream) {
  const bool halves = a.kv.layout.type == KvType::F16;
  if (a.attrs.key_dim == 64) {
    return halves ? launch_one<KvType::F16, 64>(a, stream)
                  : launch_one<KvType::Q8_0, 64>(a, stream);
  }
  return halves ? launch_one<KvType::F16, 128>(a, stream)
                : launch_one<KvType::Q8_0, 128>(a, stream);
}

}  // namespace ktx::kernels

// Attention on tensor cores, for decode and chunked prefill, GQA and absorbed MLA.
//
// A block of 4 warps takes 16 rows, (token, head) pairs that read the same KV head: some
// tokens side by side times the heads of a group, or 16 of a larger group's heads. It walks
// the pieces of 64 positions of its split,
// keeping what kv_tile.cuh says. Tokens of other sequences among the rows are masked
// and get their turn in a walk of their own.
//
// Roofline: bytes of the cache, times the groups of 16 heads. Registers: 4 * value_dim / 8
// sums for the 64 lanes of a quarter. No shared memory but q (16 * key_dim halves), scores.
#include "kernels/cuda/attention/attention_head.cuh"
#include "kernels/cuda/attention/kv_tile.cuh"
#include "kernels/cuda/attention/split_kv.cuh"
#include "kernels/cuda/rows/row_shape.cuh"

namespace ktx::kernels {
namespace {

constexpr int kThreads = kAttentionThreads;
constexpr int kRows = kAttentionRows;

// The new key and value of a token and KV head, by the block of the split that reads them:
// warps 0 and 1, before a barrier of the block. `key`: key_dim floats of shared memory.
__device__ void store_new(const CudaAttentionArgs& a, const AttentionParts& parts, int token,
                          int kv_head, int split, float* key) {
  const int position = a.kv.position[token];
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const PieceRange range =
      piece_range(first_seen(a.attrs, max(position, 0)), position + 1, parts.splits, split);
  const int piece = position / kPiece;
  if (position < 0 || piece < range.begin || piece >= range.end || warp > 1) return;
  const int sequence = a.kv.sequence[token];
  const KvLayout& layout = a.kv.layout;
  const int dim = static_cast<int>(warp == 0 ? layout.key_dim : layout.value_dim);
  const float* x = a.prepare.value + token * a.prepare.value_stride + kv_head * dim;
  std::byte* row = warp == 0 ? kv_key(a.kv, sequence, kv_head, position)
                             : kv_value(a.kv, sequence, kv_head, position);
  if (warp == 0) {
    prepare_head(a.prepare.key + token * a.prepare.key_stride + kv_head * dim, dim,
                 a.prepare.k_norm, a.prepare.k_eps, a.prepare, rope_position(a, token), key, lane);
    x = key;
  }
  for (int i = lane; i < (dim + 31) / 32 * 32; i += 32) store_piece(layout.type, x, i, dim, row);
}

template <KvType kType, int kQuarter>
__global__ void __launch_bounds__(kThreads)
    attention_tiles(CudaAttentionArgs a, AttentionParts parts) {
  begin_kernel();
  extern __shared__ uint4 q[];  // [chunk of 32][row][quarter of 8 halves]
  __shared__ float scores[kRows][kScorePitch];
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
  const int g = lane / 4;
  const int split = static_cast<int>(blockIdx.x), kv_head = static_cast<int>(blockIdx.z);
  const int group = a.attrs.heads / a.attrs.kv_heads;
  const RowShape shape = row_shape(group, kRows, one_token(a));
  const BlockRows rows(shape, static_cast<int>(blockIdx.y), kRows, group,
                       static_cast<int>(a.tokens));
  const int first_token = rows.first_token, tokens = rows.tokens;
  const int chunks = a.attrs.key_dim / 32;

  // Head of row r in all, or -1.
  const auto row_token = [&](int r) { return rows.token(r); };
  const auto row_head = [&](int r) {
    const int head = rows.head(r);
    return head >= 0 ? kv_head * group + head : -1;
  };
  float* heads = reinterpret_cast<float*>(q + chunks * kRows * 4);  // [row][key_dim]
  if (a.prepare.key) {
    for (int r = warp; r < kRows; r += kThreads / 32) {
      const int head = row_head(r);
      if (head < 0) continue;
      prepare_head(a.q + row_token(r) * a.q_stride + head * a.attrs.key_dim, a.attrs.key_dim,
                   a.prepare.q_norm, a.prepare.q_eps, a.prepare, rope_position(a, row_token(r)),
                   heads + r * a.attrs.key_dim, lane);
    }
    store_new(a, parts, first_token, kv_head, split, heads + kRows * a.attrs.key_dim);
    __syncthreads();
  }
  for (int i = thread; i < kRows * chunks * 4; i += kThreads) {
    const int r = i / (chunks * 4), chunk = i / 4 % chunks, part = i % 4;
    const int head = row_head(r);
    const float* x = nullptr;
    if (head >= 0) {
      x = a.prepare.key ? heads + r * a.attrs.key_dim
                        : a.q + row_token(r) * a.q_stride + head * a.attrs.key_dim;
      x += chunk * 32 + part * 8;
    }
    put_query(q, r, chunk, part, x, a.attrs.scale);
  }
  __syncthreads();

  // Rows g and g + 8 of this lane.
  int positions[2];  // that the row sees
  int sequence[2];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const bool live = row_head(g + 8 * r) >= 0;
    positions[r] = live ? taken_positions(a, row_token(g + 8 * r)) : 0;
    sequence[r] = live ? a.kv.sequence[row_token(g + 8 * r)] : -1;
  }
  AttentionSums<kType, kQuarter> sums;

  // A walk for each run of tokens of one sequence.
  for (int begin = 0; begin < tokens;) {
    const int run_sequence = a.kv.sequence[first_token + begin];
    int end = begin, longest = 0, lowest = INT_MAX;
    for (; end < tokens && a.kv.sequence[first_token + end] == run_sequence; ++end) {
      longest = max(longest, taken_positions(a, first_token + end));
      lowest = min(lowest, first_taken(a, first_token + end));
    }
    int seen[2], from[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int token = row_token(g + 8 * r) - first_token;
      seen[r] = sequence[r] >= 0 && token >= begin && token < end ? positions[r] : 0;
      from[r] = seen[r] > 0 ? first_taken(a, first_token + token) : 0;
    }
    const PieceRange range = piece_range(lowest, longest, parts.splits, split);
    for (int piece = range.begin; piece < range.end; ++piece) {
      const int first = piece * kPiece;
      const int position = taken_position(a, first_token + begin, kv_head, first);
      // A piece lies in one block of the cache.
      PieceRows cache;
      cache.keys = cache.values = kv_key(a.kv, run_sequence, kv_head, position);
      cache.key_bytes = cache.value_bytes = a.kv.layout.key_row_bytes();
      if (!a.attrs.value_in_key) {
        cache.values = kv_value(a.kv, run_sequence, kv_head, position);
        cache.value_bytes = a.kv.layout.value_row_bytes();
      }
      cache.last = min(kPiece, longest - first) - 1;
      sums.add(q, chunks, scores, cache, first, from, seen, a.attrs.softcap, warp, lane,
               [] { __syncthreads(); });
    }
    begin = end;
  }

#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int head = row_head(g + 8 * r);
    if (head < 0) continue;
    const int64_t token = row_token(g + 8 * r);
    const int64_t part = (token * a.attrs.heads + head) * parts.splits + split;
    float* out = parts.splits == 1 ? a.y + token * a.y_stride + head * a.attrs.value_dim
                                   : parts.values + part * a.attrs.value_dim;
    const float total = sums.total[r];
    const float factor =
        parts.splits > 1 ? 1 : softmax_factor(a.sinks, head, sums.largest[r], total);
    sums.write(r, factor, out, warp, lane);
    if (parts.splits > 1 && warp == 0 && lane % 4 == 0) parts.sums[part] = {sums.largest[r], total};
  }
}

template <KvType kType>
Status launch_tiles(const CudaAttentionArgs& a, const AttentionParts& parts, cudaStream_t stream) {
  const RowShape shape = row_shape(a.attrs.heads / a.attrs.kv_heads, kRows, one_token(a));
  const dim3 grid(parts.splits, static_cast<unsigned>(shape.blocks(a.tokens)), a.attrs.kv_heads);
  const int shared = static_cast<int>(kRows * a.attrs.key_dim * 2 +
                                      (a.prepare.key ? (kRows + 1) * a.attrs.key_dim * 4 : 0));
  const auto run = [&](auto kernel) {
    return launch("attention", kernel, grid, kThreads, shared, stream, a, parts);
  };
  switch (a.attrs.value_dim) {
    case 64:
      return run(attention_tiles<kType, 16>);
    case 128:
      return run(attention_tiles<kType, 32>);
    case 256:
      return run(attention_tiles<kType, 64>);
    default:
      return run(attention_tiles<kType, 128>);
  }
}

}  // namespace

bool attention_tiles_takes(const CudaAttentionArgs& a) {
  const int dim = a.attrs.value_dim;
  return !a.chosen && a.every == 0 && a.block % kPiece == 0 && a.kv.layout.type != KvType::F32 &&
         a.attrs.key_dim % 32 == 0 && a.attrs.key_dim <= 1024 &&
         (dim == 64 || dim == 128 || dim == 256 || dim == 512) &&
         a.kv.layout.block_tokens % kPiece == 0;
}

bool attention_prepares(const CudaAttentionArgs& a) {
  return attention_tiles_takes(a) && !a.attrs.value_in_key && a.attrs.key_dim <= 512 &&
         a.prepare.rope.rotary_begin + a.prepare.rope.rotary_dim <= a.attrs.key_dim;
}

int64_t attention_tiles_blocks(const CudaAttentionArgs& a) {
  const RowShape shape = row_shape(a.attrs.heads / a.attrs.kv_heads, kRows, one_token(a));
  return shape.blocks(a.tokens) * a.attrs.kv_heads;
}

Status launch_attention_tiles(const CudaAttentionArgs& a, const AttentionParts& parts,
                              cudaStream_t stream) {
  return a.kv.layout.type == KvType::F16 ? launch_tiles<KvType::F16>(a, parts, stream)
                                         : launch_tiles<KvType::Q8_0>(a, parts, stream);
}

}  // namespace ktx::kernels

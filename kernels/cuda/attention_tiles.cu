// Attention on tensor cores, for decode and chunked prefill, GQA and absorbed MLA.
//
// A block of 4 warps takes 16 rows, (token, head) pairs that read the same KV head: some
// tokens side by side times the heads of a group, or 16 of a larger group's heads. It walks
// the pieces of 64 positions of its split:
//
//   scores   warp w: q (16 rows) x keys of positions 16w .. 16w + 15, to shared memory
//   softmax  every warp for itself: new largest, weights in F16, sums
//   values   warp w: weights x its quarter of the value's elements
//
// Keys and values go from memory straight into B fragments: the k of a product may be
// permuted (as in marlin_layout.h), so a lane reads 8 neighbouring elements of a key, and
// of a value the lane's own columns for four positions. Tokens of other sequences among the
// rows are masked and get their turn in a walk of their own.
//
// Roofline: bytes of the cache, times the groups of 16 heads. Registers: 4 * value_dim / 8
// sums for the 64 lanes of a quarter. No shared memory but q (16 * key_dim halves), scores.
#include "kernels/cuda/attention_head.cuh"
#include "kernels/cuda/attention_parts.cuh"

namespace ktx::kernels {
namespace {

constexpr int kThreads = 128;
constexpr int kRows = 16;
constexpr int kScorePitch = kPiece + 4;

// How (token, head) pairs are laid on rows: row r is token r / heads, head r % heads.
struct RowShape {
  int heads;        // of a block: 16 or fewer
  int tokens;       // of a block
  int head_blocks;  // blocks for one token's group
};
__host__ __device__ inline RowShape row_shape(const AttentionAttrs& attrs, bool one_token) {
  const int group = attrs.heads / attrs.kv_heads;
  if (group >= kRows) return {kRows, 1, (group + kRows - 1) / kRows};
  return {group, one_token ? 1 : kRows / group, 1};
}

// The new key and value of a token and KV head, by the block of the split that reads them:
// warps 0 and 1, before a barrier of the block. `key`: key_dim floats of shared memory.
__device__ void store_new(const CudaAttentionArgs& a, const AttentionParts& parts, int token,
                          int kv_head, int split, float* key) {
  const int position = a.kv.position[token];
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const PieceRange range = piece_range(position + 1, parts.splits, split);
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
                 a.prepare.k_norm, a.prepare.k_eps, a.prepare, position, key, lane);
    x = key;
  }
  for (int i = lane; i < (dim + 31) / 32 * 32; i += 32) store_piece(layout.type, x, i, dim, row);
}

template <KvType kType, int kQuarter>
__global__ void __launch_bounds__(kThreads) attention_tiles(CudaAttentionArgs a, AttentionParts parts) {
  begin_kernel();
  constexpr int kOwn = kQuarter / 8;  // value elements of a lane
  extern __shared__ uint4 q[];        // [chunk of 32][row][quarter of 8 halves]
  __shared__ float scores[kRows][kScorePitch];
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
  const int g = lane / 4, quad = lane % 4;
  const int split = static_cast<int>(blockIdx.x), kv_head = static_cast<int>(blockIdx.z);
  const RowShape shape = row_shape(a.attrs, a.one_token_per_sequence);
  const int group = a.attrs.heads / a.attrs.kv_heads;
  const int first_token = static_cast<int>(blockIdx.y) / shape.head_blocks * shape.tokens;
  const int first_head = static_cast<int>(blockIdx.y) % shape.head_blocks * kRows;  // in the group
  const int tokens = min(shape.tokens, static_cast<int>(a.tokens) - first_token);
  const int chunks = a.attrs.key_dim / 32;

  // Head of row r in all, or -1.
  const auto row_token = [&](int r) { return first_token + r / shape.heads; };
  const auto row_head = [&](int r) {
    const int head = first_head + r % shape.heads;
    const bool live = r < tokens * shape.heads && head < group;
    return live ? kv_head * group + head : -1;
  };
  float* heads = reinterpret_cast<float*>(q + chunks * kRows * 4);  // [row][key_dim]
  if (a.prepare.key) {
    for (int r = warp; r < kRows; r += kThreads / 32) {
      const int head = row_head(r);
      if (head < 0) continue;
      prepare_head(a.q + row_token(r) * a.q_stride + head * a.attrs.key_dim, a.attrs.key_dim,
                   a.prepare.q_norm, a.prepare.q_eps, a.prepare,
                   max(a.kv.position[row_token(r)], 0), heads + r * a.attrs.key_dim, lane);
    }
    store_new(a, parts, first_token, kv_head, split, heads + kRows * a.attrs.key_dim);
    __syncthreads();
  }
  for (int i = thread; i < kRows * chunks * 4; i += kThreads) {
    const int r = i / (chunks * 4), chunk = i / 4 % chunks, part = i % 4;
    uint4 halves{0, 0, 0, 0};
    const int head = row_head(r);
    if (head >= 0) {
      const float* x = a.prepare.key ? heads + r * a.attrs.key_dim
                                     : a.q + row_token(r) * a.q_stride + head * a.attrs.key_dim;
      x += chunk * 32 + part * 8;
      float v[8];
#pragma unroll
      for (int j = 0; j < 8; ++j) v[j] = x[j] * a.attrs.scale;
      halves = {pack_halves(v[0], v[1]), pack_halves(v[2], v[3]), pack_halves(v[4], v[5]),
                pack_halves(v[6], v[7])};
    }
    q[(chunk * kRows + r) * 4 + part] = halves;
  }
  __syncthreads();

  // Rows g and g + 8 of this lane.
  int positions[2];  // that the row sees
  int sequence[2];
  float m[2] = {-INFINITY, -INFINITY}, l[2] = {0, 0};
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const bool live = row_head(g + 8 * r) >= 0;
    positions[r] = live ? a.kv.position[row_token(g + 8 * r)] + 1 : 0;
    sequence[r] = live ? a.kv.sequence[row_token(g + 8 * r)] : -1;
  }
  float sum[kOwn][4] = {};  // values: [own element][c]: rows g, g + 8; lanes 2 quad, 2 quad + 1

  // A walk for each run of tokens of one sequence.
  for (int begin = 0; begin < tokens;) {
    const int run_sequence = a.kv.sequence[first_token + begin];
    int end = begin, longest = 0;
    for (; end < tokens && a.kv.sequence[first_token + end] == run_sequence; ++end) {
      longest = max(longest, a.kv.position[first_token + end] + 1);
    }
    bool mine[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int token = row_token(g + 8 * r) - first_token;
      mine[r] = sequence[r] >= 0 && token >= begin && token < end;
    }
    const PieceRange range = piece_range(longest, parts.splits, split);
    for (int piece = range.begin; piece < range.end; ++piece) {
      const int first = piece * kPiece;
      // A piece lies in one block of the cache.
      const std::byte* keys = kv_key(a.kv, run_sequence, kv_head, first);
      const int64_t key_bytes = a.kv.layout.key_row_bytes();
      const std::byte* values = keys;
      int64_t value_bytes = key_bytes;
      if (!a.attrs.value_in_key) {
        values = kv_value(a.kv, run_sequence, kv_head, first);
        value_bytes = a.kv.layout.value_row_bytes();
      }
      const int last = min(kPiece, longest - first) - 1;  // rows past it were never written

      // Values that fit in registers are on their way while scores are made.
      constexpr bool kEarly = kOwn <= 4;
      const int own = warp * kQuarter + g * kOwn;  // first element of the lane's columns
      uint32_t early[kEarly ? 16 : 1][kOwn / 2];
      if constexpr (kEarly) {
#pragma unroll
        for (int i = 0; i < 16; ++i) {
          const int row = 16 * (i / 4) + 4 * quad + i % 4;
          kv_halves<kType, kOwn>(values + min(row, last) * value_bytes, own, early[i]);
        }
      }
      float score[2][4] = {};
      const std::byte* key0 = keys + min(16 * warp + g, last) * key_bytes;
      const std::byte* key1 = keys + min(16 * warp + 8 + g, last) * key_bytes;
#pragma unroll 4
      for (int c = 0; c < chunks; ++c) {
        uint32_t b0[4], b1[4];
        kv_halves<kType, 8>(key0, 32 * c + 8 * quad, b0);
        kv_halves<kType, 8>(key1, 32 * c + 8 * quad, b1);
        const uint4 q0 = q[(c * kRows + g) * 4 + quad], q1 = q[(c * kRows + g + 8) * 4 + quad];
        const uint32_t a0[4] = {q0.x, q1.x, q0.y, q1.y}, a1[4] = {q0.z, q1.z, q0.w, q1.w};
        mma_f16(score[0], a0, b0[0], b0[1]);
        mma_f16(score[0], a1, b0[2], b0[3]);
        mma_f16(score[1], a0, b1[0], b1[1]);
        mma_f16(score[1], a1, b1[2], b1[3]);
      }
#pragma unroll
      for (int n = 0; n < 2; ++n) {
        const int column = 16 * warp + 8 * n + 2 * quad;
        scores[g][column] = score[n][0];
        scores[g][column + 1] = score[n][1];
        scores[g + 8][column] = score[n][2];
        scores[g + 8][column + 1] = score[n][3];
      }
      __syncthreads();

      // Weights as A fragments: step s, positions 16s + 4 quad .. + 3.
      uint32_t weights[4][4];
      float shrink[2];
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        float4 v[4];
        float largest = m[r];
#pragma unroll
        for (int s = 0; s < 4; ++s) {
          v[s] = *reinterpret_cast<const float4*>(&scores[g + 8 * r][16 * s + 4 * quad]);
          const int position = first + 16 * s + 4 * quad;
          float* each = &v[s].x;
#pragma unroll
          for (int j = 0; j < 4; ++j) {
            if (!mine[r] || position + j >= positions[r]) each[j] = -INFINITY;
            largest = fmaxf(largest, each[j]);
          }
        }
        largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, 1));
        largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, 2));
        const float base = largest == -INFINITY ? 0 : largest;
        shrink[r] = __expf(m[r] - base);
        m[r] = largest;
        float total = 0;
#pragma unroll
        for (int s = 0; s < 4; ++s) {
          const float w0 = __expf(v[s].x - base), w1 = __expf(v[s].y - base);
          const float w2 = __expf(v[s].z - base), w3 = __expf(v[s].w - base);
          total += w0 + w1 + w2 + w3;
          weights[s][r] = pack_halves(w0, w1);
          weights[s][2 + r] = pack_halves(w2, w3);
        }
        total += __shfl_xor_sync(~0u, total, 1);
        total += __shfl_xor_sync(~0u, total, 2);
        l[r] = l[r] * shrink[r] + total;
      }
#pragma unroll
      for (int i = 0; i < kOwn; ++i) {
        sum[i][0] *= shrink[0], sum[i][1] *= shrink[0];
        sum[i][2] *= shrink[1], sum[i][3] *= shrink[1];
      }
#pragma unroll
      for (int s = 0; s < 4; ++s) {
        uint32_t v[4][kOwn / 2];
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          if constexpr (kEarly) {
#pragma unroll
            for (int i = 0; i < kOwn / 2; ++i) v[j][i] = early[4 * s + j][i];
          } else {
            kv_halves<kType, kOwn>(values + min(16 * s + 4 * quad + j, last) * value_bytes, own,
                                   v[j]);
          }
        }
#pragma unroll
        for (int i = 0; i < kOwn; ++i) {
          const uint32_t select = i % 2 ? 0x7632 : 0x5410;
          mma_f16(sum[i], weights[s], __byte_perm(v[0][i / 2], v[1][i / 2], select),
                  __byte_perm(v[2][i / 2], v[3][i / 2], select));
        }
      }
      __syncthreads();
    }
    begin = end;
  }

  // Column 2 quad + e of product i is element i of lane 2 quad + e's.
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int head = row_head(g + 8 * r);
    if (head < 0) continue;
    const int64_t token = row_token(g + 8 * r);
    const int64_t part = (token * a.attrs.heads + head) * parts.splits + split;
    float* out = parts.splits == 1 ? a.y + token * a.y_stride + head * a.attrs.value_dim
                                   : parts.values + part * a.attrs.value_dim;
    const float factor = parts.splits > 1 ? 1 : l[r] > 0 ? 1 / l[r] : 0;
#pragma unroll
    for (int e = 0; e < 2; ++e) {
#pragma unroll
      for (int i = 0; i < kOwn; ++i) {
        out[warp * kQuarter + (2 * quad + e) * kOwn + i] = sum[i][2 * r + e] * factor;
      }
    }
    if (parts.splits > 1 && warp == 0 && quad == 0) parts.sums[part] = {m[r], l[r]};
  }
}

template <KvType kType>
Status launch_tiles(const CudaAttentionArgs& a, const AttentionParts& parts, cudaStream_t stream) {
  const RowShape shape = row_shape(a.attrs, a.one_token_per_sequence);
  const dim3 grid(parts.splits,
                  static_cast<unsigned>(ceil_div<int64_t>(a.tokens, shape.tokens)) * shape.head_blocks,
                  a.attrs.kv_heads);
  const int shared = static_cast<int>(kRows * a.attrs.key_dim * 2 +
                                      (a.prepare.key ? (kRows + 1) * a.attrs.key_dim * 4 : 0));
  const auto run = [&](auto kernel) {
    return launch("attention", kernel, grid, kThreads, shared, stream, a, parts);
  };
  switch (a.attrs.value_dim) {
    case 64: return run(attention_tiles<kType, 16>);
    case 128: return run(attention_tiles<kType, 32>);
    case 256: return run(attention_tiles<kType, 64>);
    default: return run(attention_tiles<kType, 128>);
  }
}

}  // namespace

bool attention_tiles_takes(const CudaAttentionArgs& a) {
  const int dim = a.attrs.value_dim;
  return a.kv.layout.type != KvType::F32 && a.attrs.key_dim % 32 == 0 && a.attrs.key_dim <= 1024 &&
         (dim == 64 || dim == 128 || dim == 256 || dim == 512) &&
         a.kv.layout.block_tokens % kPiece == 0;
}

bool attention_prepares(const CudaAttentionArgs& a) {
  return attention_tiles_takes(a) && !a.attrs.value_in_key && a.attrs.key_dim <= 512 &&
         a.prepare.rope.rotary_begin + a.prepare.rope.rotary_dim <= a.attrs.key_dim;
}

int64_t attention_tiles_blocks(const CudaAttentionArgs& a) {
  const RowShape shape = row_shape(a.attrs, a.one_token_per_sequence);
  return ceil_div<int64_t>(a.tokens, shape.tokens) * shape.head_blocks * a.attrs.kv_heads;
}

Status launch_attention_tiles(const CudaAttentionArgs& a, const AttentionParts& parts,
                              cudaStream_t stream) {
  return a.kv.layout.type == KvType::F16 ? launch_tiles<KvType::F16>(a, parts, stream)
                                         : launch_tiles<KvType::Q8_0>(a, parts, stream);
}

}  // namespace ktx::kernels

// choose_positions (cuda_attention.h): two kernels for a slice of the tokens.
//
//   scores   a block takes one token and 256 positions. F16 and Q8_0 caches of heads of 64 or 128
//            on tensor cores: a warp keeps the keys of 16 positions in registers and goes through
//            the heads, 16 a product. Other caches: a thread a position.
//   best     best_scores.cuh, a block one token.
//
// Roofline: tensor cores, 2 * heads * key_dim operations a token and position (DeepSeek-V3.2:
// 16384). Keys and scores are read from L2 by most blocks.
#include "kernels/cuda/attention/best_scores.cuh"
#include "kernels/cuda/attention/cuda_attention.h"
#include "kernels/cuda/attention/kv_rows.cuh"
#include "kernels/cuda/common/cuda_launch.cuh"

namespace ktx::kernels {
namespace {

constexpr int kScoreThreads = 128;
constexpr int kScored = 256;                        // positions of a block
constexpr int64_t kSliceBytes = int64_t{64} << 20;  // of scores

// Positions, or entries, that a token sees; none of padding.
__device__ __forceinline__ int seen_by(const CudaChoosePositionsArgs& a, int64_t token) {
  return static_cast<int>(entries_seen(a.attrs.every, max(a.kv.position[token], -1)));
}
// Scores are for tokens that see more than they may take.
__device__ __forceinline__ int scored_positions(const CudaChoosePositionsArgs& a, int64_t token) {
  const int positions = seen_by(a, token);
  return positions > a.attrs.top_k ? positions : 0;
}

// kChunks: key_dim in thirty-twos.
template <KvType kType, int kChunks>
__global__ void __launch_bounds__(kScoreThreads)
    score_tiles(CudaChoosePositionsArgs a, int64_t first_token, float* scores, int64_t pitch) {
  begin_kernel();
  extern __shared__ uint4 q[];  // [16 heads][kChunks][16][4], as in kv_tile.cuh
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
  const int g = lane / 4, quad = lane % 4;
  const int64_t t = first_token + blockIdx.y;
  const int seen = scored_positions(a, t), begin = static_cast<int>(blockIdx.x) * kScored;
  if (begin >= seen) return;
  const int heads = a.attrs.heads, tiles = (heads + 15) / 16, dim = 32 * kChunks;
  float* const weights = reinterpret_cast<float*>(q + tiles * kChunks * 64);
  for (int i = thread; i < tiles * kChunks * 64; i += kScoreThreads) {
    const int part = i % 4, row = i / 4 % 16, chunk = i / 64 % kChunks, tile = i / 64 / kChunks;
    const int head = 16 * tile + row;
    const float* x = a.q + t * a.q_stride + head * dim + 32 * chunk + 8 * part;
    float v[8] = {};
#pragma unroll
    for (int j = 0; j < 8; ++j) v[j] = head < heads ? x[j] : 0;
    q[i] = {pack_halves(v[0], v[1]), pack_halves(v[2], v[3]), pack_halves(v[4], v[5]),
            pack_halves(v[6], v[7])};
  }
  for (int h = thread; h < 16 * tiles; h += kScoreThreads) {
    weights[h] = h < heads ? a.weights[t * a.weights_stride + h] * a.attrs.scale : 0;
  }
  __syncthreads();
  const int sequence = a.kv.sequence[t];
  for (int first = begin + 16 * warp; first < min(seen, begin + kScored); first += 64) {
    uint32_t keys[2][kChunks][4];
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      const std::byte* row = kv_key(a.kv, sequence, 0, min(first + 8 * n + g, seen - 1));
#pragma unroll
      for (int c = 0; c < kChunks; ++c) kv_halves<kType, 8>(row, 32 * c + 8 * quad, keys[n][c]);
    }
    float sum[2][2] = {};
    for (int tile = 0; tile < tiles; ++tile) {
      float score[2][4] = {};
#pragma unroll
      for (int c = 0; c < kChunks; ++c) {
        const uint4* at = q + (tile * kChunks + c) * 64;
        const uint4 low = at[g * 4 + quad], high = at[(g + 8) * 4 + quad];
        const uint32_t a0[4] = {low.x, high.x, low.y, high.y};
        const uint32_t a1[4] = {low.z, high.z, low.w, high.w};
#pragma unroll
        for (int n = 0; n < 2; ++n) {
          mma_f16(score[n], a0, keys[n][c][0], keys[n][c][1]);
          mma_f16(score[n], a1, keys[n][c][2], keys[n][c][3]);
        }
      }
      const float low = weights[16 * tile + g], high = weights[16 * tile + g + 8];
#pragma unroll
      for (int n = 0; n < 2; ++n) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          sum[n][e] = fmaf(low, fmaxf(score[n][e], 0), sum[n][e]);
          sum[n][e] = fmaf(high, fmaxf(score[n][2 + e], 0), sum[n][e]);
        }
      }
    }
#pragma unroll
    for (int n = 0; n < 2; ++n) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        for (int o = 4; o < 32; o *= 2) sum[n][e] += __shfl_xor_sync(~0u, sum[n][e], o);
        const int position = first + 8 * n + 2 * quad + e;
        if (g == 0 && position < seen) scores[blockIdx.y * pitch + position] = sum[n][e];
      }
    }
  }
}

// Every form of cache: a thread a position, in F32.
__global__ void __launch_bounds__(kScoreThreads)
    score_any(CudaChoosePositionsArgs a, int64_t first_token, float* scores, int64_t pitch) {
  begin_kernel();
  const int64_t t = first_token + blockIdx.y;
  const int seen = scored_positions(a, t), begin = static_cast<int>(blockIdx.x) * kScored;
  const KvType type = a.kv.layout.type;
  const int dim = a.attrs.key_dim;
  for (int position = begin + static_cast<int>(threadIdx.x); position < min(seen, begin + kScored);
       position += kScoreThreads) {
    const std::byte* key = kv_key(a.kv, a.kv.sequence[t], 0, position);
    float sum = 0;
    for (int h = 0; h < a.attrs.heads; ++h) {
      const float* q = a.q + t * a.q_stride + int64_t{h} * dim;
      float score = 0;
      for (int d = 0; d < dim; ++d) score = fmaf(q[d], kv_element(type, key, d), score);
      const float weight = a.weights[t * a.weights_stride + h] * a.attrs.scale;
      sum = fmaf(weight, fmaxf(score, 0), sum);
    }
    scores[blockIdx.y * pitch + position] = sum;
  }
}

// The rows of best_scores.cuh: a token each.
struct TokenRows {
  CudaChoosePositionsArgs a;
  int64_t first_token;
  const float* all_scores;
  int64_t pitch;

  __device__ int most() const { return a.attrs.top_k; }
  __device__ int count(int64_t row) const { return seen_by(a, first_token + row); }
  __device__ const float* scores(int64_t row) const { return all_scores + row * pitch; }
  __device__ int32_t* chosen(int64_t row) const { return a.chosen + (first_token + row) * most(); }
};

// Most that one token may see.
int64_t most_seen(const CudaChoosePositionsArgs& a) {
  return a.max_positions / a.attrs.every;
}

bool tiles_take(const CudaChoosePositionsArgs& a) {
  return a.kv.layout.type != KvType::F32 && (a.attrs.key_dim == 64 || a.attrs.key_dim == 128) &&
         a.attrs.heads <= 128;
}

template <KvType kType, int kChunks>
Status launch_tiles(const CudaChoosePositionsArgs& a, int64_t first, dim3 grid, float* scores,
                    int64_t pitch, cudaStream_t stream) {
  const int rows = ceil_div(a.attrs.heads, 16) * 16;
  const int shared = rows * kChunks * 64 + rows * 4;
  return launch("choose_positions: scores", score_tiles<kType, kChunks>, grid, kScoreThreads,
                shared, stream, a, first, scores, pitch);
}
template <KvType kType>
Status launch_type(const CudaChoosePositionsArgs& a, int64_t first, dim3 grid, float* scores,
                   int64_t pitch, cudaStream_t stream) {
  return a.attrs.key_dim == 128 ? launch_tiles<kType, 4>(a, first, grid, scores, pitch, stream)
                                : launch_tiles<kType, 2>(a, first, grid, scores, pitch, stream);
}
Status launch_scores(const CudaChoosePositionsArgs& a, int64_t first, int64_t tokens, float* scores,
                     int64_t pitch, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>(ceil_div<int64_t>(most_seen(a), kScored)),
                  static_cast<unsigned>(tokens));
  if (!tiles_take(a)) {
    return launch("choose_positions: scores", score_any, grid, kScoreThreads, 0, stream, a, first,
                  scores, pitch);
  }
  return a.kv.layout.type == KvType::F16
             ? launch_type<KvType::F16>(a, first, grid, scores, pitch, stream)
             : launch_type<KvType::Q8_0>(a, first, grid, scores, pitch, stream);
}

// Floats from one token's scores to the next one's.
int64_t score_pitch(const CudaChoosePositionsArgs& a) {
  return ceil_div<int64_t>(most_seen(a), 64) * 64;
}
int64_t slice_tokens(const CudaChoosePositionsArgs& a) {
  const int64_t most = kSliceBytes / 4 / (most_seen(a) > 0 ? score_pitch(a) : 64);
  return most < 1 ? 1 : most < a.tokens ? most : a.tokens;
}

}  // namespace

int64_t cuda_choose_positions_workspace(const CudaChoosePositionsArgs& a) {
  if (most_seen(a) <= a.attrs.top_k) return 0;  // no token has a choice
  return slice_tokens(a) * score_pitch(a) * 4;
}

Status launch_choose_positions(const CudaChoosePositionsArgs& a, CudaStream stream) {
  KTX_TRY(
      check_workspace("choose_positions", a.workspace_bytes, cuda_choose_positions_workspace(a)));
  float* const scores = reinterpret_cast<float*>(a.workspace);
  const bool chooses = most_seen(a) > a.attrs.top_k;
  const int64_t slice = chooses ? slice_tokens(a) : a.tokens, pitch = score_pitch(a);
  for (int64_t first = 0; first < a.tokens; first += slice) {
    const int64_t tokens = slice < a.tokens - first ? slice : a.tokens - first;
    if (chooses) KTX_TRY(launch_scores(a, first, tokens, scores, pitch, stream));
    KTX_TRY(launch("choose_positions: best", best_scores<TokenRows>,
                   dim3(static_cast<unsigned>(tokens)), kBestThreads, 0, stream,
                   TokenRows{a, first, scores, pitch}));
  }
  return {};
}

}  // namespace ktx::kernels

// choose_blocks (cuda_attention.h): two kernels for a slice of the tokens.
//
//   scores   a warp takes one token and a block of positions before those that are taken in any
//            case. F16 and Q8_0 caches of heads of 64 or 128, up to 16 of them: on tensor cores, 8
//            positions a product. Other caches: a lane a position.
//   best     best_scores.cuh, a block one head of one token; blocks that are taken in any case have
//            infinite scores.
//
// Roofline: bytes of the keys, which most blocks read from L2.
#include "kernels/cuda/attention/best_scores.cuh"
#include "kernels/cuda/attention/cuda_attention.h"
#include "kernels/cuda/attention/kv_rows.cuh"
#include "kernels/cuda/common/cuda_launch.cuh"

namespace ktx::kernels {
namespace {

constexpr int kWarps = 4, kThreads = 32 * kWarps;
constexpr int64_t kSliceBytes = int64_t{64} << 20;  // of scores

// The scores of a slice: [tokens][heads][pitch].
struct BlockScores {
  CudaChooseBlocksArgs a;
  int64_t first_token;
  float* scores;
  int64_t pitch;

  // Blocks that a token sees, its own among them.
  __device__ int seen(int64_t token) const {
    const int position = a.kv.position[token];
    return position < 0 ? 0 : position / a.attrs.block + 1;
  }
  __device__ float* of(int64_t token, int head) const {
    return scores + ((token - first_token) * a.attrs.heads + head) * pitch;
  }
  // The block of positions that the warp scores for a token; -1: none.
  __device__ int own_block(int64_t token) const {
    const int block = static_cast<int>(blockIdx.x) * kWarps + static_cast<int>(threadIdx.x) / 32;
    const int count = seen(token);
    if (count <= a.attrs.top_k || block >= count) return -1;
    if (block < count - a.attrs.local) return block;
    for (int h = static_cast<int>(threadIdx.x) % 32; h < a.attrs.heads; h += 32) {
      of(token, h)[block] = INFINITY;
    }
    return -1;
  }
};

// kChunks: key_dim in thirty-twos. Lane 4 * g + quad has heads g and g + 8 of positions 2 * quad
// and the next.
template <KvType kType, int kChunks>
__global__ void __launch_bounds__(kThreads) score_tiles(BlockScores s) {
  begin_kernel();
  const CudaChooseBlocksArgs& a = s.a;
  const int64_t t = s.first_token + blockIdx.y;
  const int block = s.own_block(t);
  if (block < 0) return;
  const int lane = static_cast<int>(threadIdx.x) % 32, g = lane / 4, quad = lane % 4;
  uint32_t q[2][kChunks][4];  // of heads g and g + 8: elements 8 * quad .. + 7 of each chunk
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int head = g + 8 * r;
    const float* const x = a.q + t * a.q_stride + head * 32 * kChunks + 8 * quad;
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const bool there = head < a.attrs.heads;
        q[r][c][j] = there ? pack_halves(x[32 * c + 2 * j], x[32 * c + 2 * j + 1]) : 0;
      }
    }
  }
  float best[2] = {-INFINITY, -INFINITY};
  const int sequence = a.kv.sequence[t], begin = block * a.attrs.block;
  const int last = begin + a.attrs.block - 1;  // of blocks that are no multiple of 8: again
  for (int first = begin; first <= last; first += 8) {
    const std::byte* const row = kv_key(a.kv, sequence, 0, min(first + g, last));
    float score[4] = {};
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
      uint32_t key[4];
      kv_halves<kType, 8>(row, 32 * c + 8 * quad, key);
      const uint32_t low[4] = {q[0][c][0], q[1][c][0], q[0][c][1], q[1][c][1]};
      const uint32_t high[4] = {q[0][c][2], q[1][c][2], q[0][c][3], q[1][c][3]};
      mma_f16(score, low, key[0], key[1]);
      mma_f16(score, high, key[2], key[3]);
    }
    best[0] = fmaxf(best[0], fmaxf(score[0], score[1]));
    best[1] = fmaxf(best[1], fmaxf(score[2], score[3]));
  }
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    best[r] = fmaxf(best[r], __shfl_xor_sync(~0u, best[r], 1));
    best[r] = fmaxf(best[r], __shfl_xor_sync(~0u, best[r], 2));
    if (quad == 0 && g + 8 * r < a.attrs.heads) s.of(t, g + 8 * r)[block] = best[r];
  }
}

// Every form of cache: a lane a position, in F32.
__global__ void __launch_bounds__(kThreads) score_any(BlockScores s) {
  begin_kernel();
  const CudaChooseBlocksArgs& a = s.a;
  const int64_t t = s.first_token + blockIdx.y;
  const int block = s.own_block(t);
  if (block < 0) return;
  const int lane = static_cast<int>(threadIdx.x) % 32, dim = a.attrs.key_dim;
  const int begin = block * a.attrs.block;
  for (int h = 0; h < a.attrs.heads; ++h) {
    const float* const q = a.q + t * a.q_stride + int64_t{h} * dim;
    float best = -INFINITY;
    for (int p = begin + lane; p < begin + a.attrs.block; p += 32) {
      const std::byte* const key = kv_key(a.kv, a.kv.sequence[t], 0, p);
      float score = 0;
      for (int d = 0; d < dim; ++d) {
        score = fmaf(q[d], kv_element(a.kv.layout.type, key, d), score);
      }
      best = fmaxf(best, score);
    }
    best = warp_max(best);
    if (lane == 0) s.of(t, h)[block] = best;
  }
}

// The rows of best_scores.cuh: a head of a token each.
struct HeadRows {
  BlockScores s;

  __device__ int most() const { return s.a.attrs.top_k; }
  __device__ int count(int64_t row) const { return s.seen(token(row)); }
  __device__ const float* scores(int64_t row) const { return s.of(token(row), head(row)); }
  __device__ int32_t* chosen(int64_t row) const {
    return s.a.chosen + (token(row) * s.a.attrs.heads + head(row)) * most();
  }

 private:
  __device__ int64_t token(int64_t row) const { return s.first_token + row / s.a.attrs.heads; }
  __device__ int head(int64_t row) const { return static_cast<int>(row % s.a.attrs.heads); }
};

Status launch_scores(const BlockScores& s, int64_t tokens, int64_t blocks, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>(ceil_div<int64_t>(blocks, kWarps)),
                  static_cast<unsigned>(tokens));
  const auto run = [&](auto kernel) {
    return launch("choose_blocks: scores", kernel, grid, kThreads, 0, stream, s);
  };
  const ChooseBlocksAttrs& attrs = s.a.attrs;
  const KvType type = s.a.kv.layout.type;
  const bool tiles = attrs.key_dim == 64 || attrs.key_dim == 128;
  if (!tiles || attrs.heads > 16 || type == KvType::F32) return run(score_any);
  if (type == KvType::F16) {
    return attrs.key_dim == 128 ? run(score_tiles<KvType::F16, 4>)
                                : run(score_tiles<KvType::F16, 2>);
  }
  return attrs.key_dim == 128 ? run(score_tiles<KvType::Q8_0, 4>)
                              : run(score_tiles<KvType::Q8_0, 2>);
}

int64_t most_blocks(const CudaChooseBlocksArgs& a) {
  return ceil_div<int64_t>(a.max_positions, a.attrs.block);
}
// Floats from one head's scores to the next one's.
int64_t score_pitch(const CudaChooseBlocksArgs& a) {
  return ceil_div<int64_t>(most_blocks(a), 32) * 32;
}
int64_t slice_tokens(const CudaChooseBlocksArgs& a) {
  const int64_t token_bytes = a.attrs.heads * score_pitch(a) * 4;
  const int64_t most = kSliceBytes / (token_bytes > 0 ? token_bytes : 4);
  return most < 1 ? 1 : most < a.tokens ? most : a.tokens;
}
bool chooses(const CudaChooseBlocksArgs& a) {
  return most_blocks(a) > a.attrs.top_k;
}

}  // namespace

int64_t cuda_choose_blocks_workspace(const CudaChooseBlocksArgs& a) {
  return chooses(a) ? slice_tokens(a) * a.attrs.heads * score_pitch(a) * 4 : 0;
}

Status launch_choose_blocks(const CudaChooseBlocksArgs& a, CudaStream stream) {
  KTX_TRY(check_workspace("choose_blocks", a.workspace_bytes, cuda_choose_blocks_workspace(a)));
  const int64_t slice = chooses(a) ? slice_tokens(a) : a.tokens;
  for (int64_t first = 0; first < a.tokens; first += slice) {
    const int64_t tokens = slice < a.tokens - first ? slice : a.tokens - first;
    const BlockScores s{a, first, reinterpret_cast<float*>(a.workspace), score_pitch(a)};
    if (chooses(a)) KTX_TRY(launch_scores(s, tokens, most_blocks(a), stream));
    KTX_TRY(launch("choose_blocks: best", best_scores<HeadRows>,
                   dim3(static_cast<unsigned>(tokens * a.attrs.heads)), kBestThreads, 0, stream,
                   HeadRows{s}));
  }
  return {};
}

}  // namespace ktx::kernels

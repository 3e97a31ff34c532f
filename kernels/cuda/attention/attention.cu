// attention (cuda_attention.h): how many splits, which kernel, and the merge of the parts.
#include "kernels/cuda/attention/split_kv.cuh"

namespace ktx::kernels {
namespace {

constexpr int kMostSplits = 128;  // threads of the merge

// The kernels, the first that takes a launch: its blocks of one split, and how positions are split.
struct Way {
  bool (*takes)(const CudaAttentionArgs&);
  int64_t (*blocks)(const CudaAttentionArgs&);
  Status (*launch)(const CudaAttentionArgs&, const AttentionParts&, cudaStream_t);
  int at_once;       // blocks of an SM
  bool overfull;     // splits rather more than an SM takes, or rather less
  int least_pieces;  // that pay for a split
  int rows;          // of a block
};
bool any_takes(const CudaAttentionArgs&) {
  return true;
}
int64_t any_blocks(const CudaAttentionArgs& a) {
  return a.tokens * a.attrs.heads;
}
constexpr Way kWays[] = {
    {attention_latent_takes, attention_latent_blocks, launch_attention_latent, 1, false, 1, 16},
#ifdef KTX_CUDA_WGMMA
    {attention_wgmma_takes, attention_wgmma_blocks, launch_attention_wgmma, 1, false, 4, 128},
#endif
    {attention_mma_takes, attention_mma_blocks, launch_attention_mma, 2, false, 4, 128},
    {attention_tiles_takes, attention_tiles_blocks, launch_attention_tiles, 4, true, 1, 16},
    {any_takes, any_blocks, launch_attention_any, 4, true, 1, 16},
};
const Way& way_of(const CudaAttentionArgs& a) {
  const Way* way = kWays;
  while (!way->takes(a)) ++way;
  return *way;
}

int split_count(const CudaAttentionArgs& a, const Way& way) {
  const int64_t blocks = way.blocks(a), places = int64_t{way.at_once} * sm_count();
  const int64_t wanted = blocks == 0    ? 1
                         : way.overfull ? ceil_div<int64_t>(places, blocks)
                                        : places / blocks;
  // (A window may begin within a piece.)
  const int64_t pieces =
      ceil_div<int64_t>(seen_positions(a, way.rows), kPiece) + (a.attrs.window > 0);
  int64_t splits = wanted < pieces / way.least_pieces ? wanted : pieces / way.least_pieces;
  splits = splits < kMostSplits ? splits : kMostSplits;
  return splits > 1 ? static_cast<int>(splits) : 1;
}

int64_t aligned(int64_t bytes) {
  return ceil_div<int64_t>(bytes, 256) * 256;
}

constexpr int kMergeColumns = 128;  // of a value, of a block

// One block a (head, token) and some columns of the value: the weights of the parts, then four
// groups of 32 threads take every fourth part, four columns a thread. kQuads: value_dim is a
// multiple of 4; else a thread a column.
template <bool kQuads>
__global__ void __launch_bounds__(128) merge_parts(AttentionParts parts, int heads, int value_dim,
                                                   const float* sinks, float* y, int64_t y_stride) {
  begin_kernel();
  __shared__ float weight[kMostSplits];
  __shared__ float largest[4], total[4];
  __shared__ float4 sums[3][32];
  const int thread = static_cast<int>(threadIdx.x);
  const int64_t t = blockIdx.y, h = blockIdx.x, first = (t * heads + h) * parts.splits;
  float2 own{-INFINITY, 0};
  if (thread < parts.splits) own = parts.sums[first + thread];
  float m = warp_max(own.x);
  if (thread % 32 == 0) largest[thread / 32] = m;
  __syncthreads();
  m = fmaxf(fmaxf(largest[0], largest[1]), fmaxf(largest[2], largest[3]));
  const float w = own.y > 0 ? __expf(own.x - m) : 0;  // 0: a part without positions
  if (thread < parts.splits) weight[thread] = w;
  const float l = warp_sum(w * own.y);
  if (thread % 32 == 0) total[thread / 32] = l;
  __syncthreads();
  const float sum = total[0] + total[1] + total[2] + total[3];
  const float factor = softmax_factor(sinks, static_cast<int>(h), m, sum);
  const int begin = static_cast<int>(blockIdx.z) * kMergeColumns;
  const float* values = parts.values + first * value_dim + begin;
  float* out = y + t * y_stride + h * value_dim + begin;
  if constexpr (kQuads) {
    const int group = thread / 32, quad = thread % 32;
    float4 v = {0, 0, 0, 0};
    if (begin + 4 * quad < value_dim) {
#pragma unroll 8
      for (int s = group; s < parts.splits; s += 4) {
        const float4 part = *reinterpret_cast<const float4*>(values + s * value_dim + 4 * quad);
        v.x = fmaf(weight[s], part.x, v.x), v.y = fmaf(weight[s], part.y, v.y);
        v.z = fmaf(weight[s], part.z, v.z), v.w = fmaf(weight[s], part.w, v.w);
      }
    }
    if (group > 0) sums[group - 1][quad] = v;
    __syncthreads();
    if (group > 0 || begin + 4 * quad >= value_dim) return;
#pragma unroll
    for (int g = 0; g < 3; ++g) {
      const float4 other = sums[g][quad];
      v.x += other.x, v.y += other.y, v.z += other.z, v.w += other.w;
    }
    out[4 * quad] = v.x * factor, out[4 * quad + 1] = v.y * factor;
    out[4 * quad + 2] = v.z * factor, out[4 * quad + 3] = v.w * factor;
  } else if (begin + thread < value_dim) {
    float value = 0;
    for (int s = 0; s < parts.splits; ++s) {
      value = fmaf(weight[s], values[s * value_dim + thread], value);
    }
    out[thread] = value * factor;
  }
}

}  // namespace

bool attention_decodes(const CudaAttentionArgs& a) {
  return attention_decode_takes(a);
}

int64_t cuda_attention_workspace(const CudaAttentionArgs& a) {
  if (attention_decode_takes(a)) return attention_decode_workspace(a);
  const int splits = split_count(a, way_of(a));
  if (splits == 1) return 0;
  const int64_t count = a.tokens * a.attrs.heads * splits;
  return aligned(count * a.attrs.value_dim * 4) + aligned(count * 8);
}

Status launch_attention(const CudaAttentionArgs& a, CudaStream stream) {
  if (a.tokens == 0) return {};
  KTX_TRY(check_workspace("attention", a.workspace_bytes, cuda_attention_workspace(a)));
  if (attention_decode_takes(a)) return launch_attention_one(a, stream);
  if (a.prepare.key && !(a.one_token_per_sequence && attention_prepares(a))) {
    return Error{"attention: heads of this shape are not prepared by it"};
  }
  AttentionParts parts;
  const Way& way = way_of(a);
  parts.splits = split_count(a, way);
  parts.values = reinterpret_cast<float*>(a.workspace);
  const int64_t count = a.tokens * a.attrs.heads * parts.splits;
  parts.sums = reinterpret_cast<float2*>(a.workspace + aligned(count * a.attrs.value_dim * 4));
  KTX_TRY(way.launch(a, parts, stream));
  if (parts.splits == 1) return {};
  return launch_merge_parts(parts, a.attrs.heads, a.attrs.value_dim, a.tokens, a.sinks, a.y,
                            a.y_stride, stream);
}

Status launch_merge_parts(const AttentionParts& parts, int heads, int value_dim, int64_t tokens,
                          const float* sinks, float* y, int64_t y_stride, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>(heads), static_cast<unsigned>(tokens),
                  static_cast<unsigned>(ceil_div(value_dim, kMergeColumns)));
  return launch("attention: merge", value_dim % 4 == 0 ? merge_parts<true> : merge_parts<false>,
                grid, 128, 0, stream, parts, heads, value_dim, sinks, y, y_stride);
}

}  // namespace ktx::kernels

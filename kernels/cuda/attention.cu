// attention (cuda_attention.h): how many splits, which kernel, and the merge of the parts.
#include "kernels/cuda/attention_parts.cuh"

namespace ktx::kernels {
namespace {

constexpr int kMostSplits = 128;  // threads of the merge

// Enough splits for four blocks a processor, and none without a piece of its own.
int split_count(const CudaAttentionArgs& a) {
  const int64_t blocks =
      attention_tiles_takes(a) ? attention_tiles_blocks(a) : a.tokens * a.attrs.heads;
  const int64_t wanted = ceil_div<int64_t>(4 * multiprocessors(), blocks > 0 ? blocks : 1);
  const int64_t pieces = ceil_div<int64_t>(a.max_positions, kPiece);
  int64_t splits = wanted < pieces ? wanted : pieces;
  splits = splits < kMostSplits ? splits : kMostSplits;
  return splits > 1 ? static_cast<int>(splits) : 1;
}

int64_t aligned(int64_t bytes) { return ceil_div<int64_t>(bytes, 256) * 256; }

// One block a (head, token): the weights of the parts, then a thread an element of the value.
__global__ void __launch_bounds__(128)
    merge_parts(AttentionParts parts, int heads, int value_dim, float* y, int64_t y_stride) {
  begin_kernel();
  __shared__ float weight[kMostSplits];
  __shared__ float largest[4], total[4];
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
  const float factor = sum > 0 ? 1 / sum : 0;
  const float* values = parts.values + first * value_dim;
  for (int d = thread; d < value_dim; d += 128) {
    float value = 0;
#pragma unroll 8
    for (int s = 0; s < parts.splits; ++s) value = fmaf(weight[s], values[s * value_dim + d], value);
    y[t * y_stride + h * value_dim + d] = value * factor;
  }
}

}  // namespace

int64_t cuda_attention_workspace(const CudaAttentionArgs& a) {
  const int splits = split_count(a);
  if (splits == 1) return 0;
  const int64_t count = a.tokens * a.attrs.heads * splits;
  return aligned(count * a.attrs.value_dim * 4) + aligned(count * 8);
}

Status launch_attention(const CudaAttentionArgs& a, CudaStream stream) {
  if (a.tokens == 0) return {};
  KTX_TRY(check_workspace("attention", a.workspace_bytes, cuda_attention_workspace(a)));
  if (a.prepare.key && !(a.one_token_per_sequence && attention_prepares(a))) {
    return Error{"attention: heads of this shape are not prepared by it"};
  }
  AttentionParts parts;
  parts.splits = split_count(a);
  parts.values = reinterpret_cast<float*>(a.workspace);
  const int64_t count = a.tokens * a.attrs.heads * parts.splits;
  parts.sums = reinterpret_cast<float2*>(a.workspace + aligned(count * a.attrs.value_dim * 4));
  if (attention_tiles_takes(a)) {
    KTX_TRY(launch_attention_tiles(a, parts, stream));
  } else {
    KTX_TRY(launch_attention_any(a, parts, stream));
  }
  if (parts.splits == 1) return {};
  const dim3 grid(a.attrs.heads, static_cast<unsigned>(a.tokens));
  return launch("attention: merge", merge_parts, grid, 128, 0, stream, parts,
                static_cast<int>(a.attrs.heads), static_cast<int>(a.attrs.value_dim), a.y,
                a.y_stride);
}

}  // namespace ktx::kernels

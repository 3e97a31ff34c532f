// attention (cuda_attention.h): how many splits, which kernel, and the merge of the parts.
#include "kernels/cuda/attention_parts.cuh"

namespace ktx::kernels {
namespace {

constexpr int kMostSplits = 128;

// Enough splits for two blocks a processor, and none without a piece of its own.
int split_count(const CudaAttentionArgs& a) {
  const int64_t blocks =
      attention_tiles_takes(a) ? attention_tiles_blocks(a) : a.tokens * a.attrs.heads;
  const int64_t wanted = ceil_div<int64_t>(2 * multiprocessors(), blocks > 0 ? blocks : 1);
  const int64_t pieces = ceil_div<int64_t>(a.max_positions, kPiece);
  int64_t splits = wanted < pieces ? wanted : pieces;
  splits = splits < kMostSplits ? splits : kMostSplits;
  return splits > 1 ? static_cast<int>(splits) : 1;
}

int64_t aligned(int64_t bytes) { return ceil_div<int64_t>(bytes, 256) * 256; }

// One block a (head, token), a thread an element of the value.
__global__ void __launch_bounds__(128)
    merge_parts(AttentionParts parts, int heads, int value_dim, float* y, int64_t y_stride) {
  const int64_t t = blockIdx.y, h = blockIdx.x, first = (t * heads + h) * parts.splits;
  float m = -INFINITY;
  for (int s = 0; s < parts.splits; ++s) m = fmaxf(m, parts.sums[first + s].x);
  for (int d = static_cast<int>(threadIdx.x); d < value_dim; d += 128) {
    float value = 0, l = 0;
    for (int s = 0; s < parts.splits; ++s) {
      const float2 sums = parts.sums[first + s];
      if (!(sums.y > 0)) continue;  // a part without positions
      const float weight = __expf(sums.x - m);
      l += weight * sums.y;
      value += weight * parts.values[(first + s) * value_dim + d];
    }
    y[t * y_stride + h * value_dim + d] = l > 0 ? value / l : 0;
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
  if (a.workspace_bytes < cuda_attention_workspace(a)) {
    return Error{"attention: " + std::to_string(a.workspace_bytes) + " bytes of workspace, needs " +
                 std::to_string(cuda_attention_workspace(a))};
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

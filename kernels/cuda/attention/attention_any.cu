// Attention for every form of cache: F32, odd widths. A block takes one head of one token
// and one split, 64 positions at a time: scores by warps, then values by threads. The
// kernel that the quick one (attention_tiles.cu) is checked against; not made to be fast.
#include "kernels/cuda/attention/split_kv.cuh"

namespace ktx::kernels {
namespace {

constexpr int kThreads = 128;
constexpr int kOwn = 8;  // value elements of a thread: value_dim <= 1024

__global__ void __launch_bounds__(kThreads)
    attention_any(CudaAttentionArgs a, AttentionParts parts) {
  begin_kernel();
  extern __shared__ float q[];  // key_dim
  __shared__ float weight[kPiece];
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
  const int64_t t = blockIdx.z;
  const int h = static_cast<int>(blockIdx.y), split = static_cast<int>(blockIdx.x);
  const int kv_head = h / (a.attrs.heads / a.attrs.kv_heads);
  const int sequence = a.kv.sequence[t], positions = taken_positions(a, t);
  for (int d = thread; d < a.attrs.key_dim; d += kThreads) {
    q[d] = a.q[t * a.q_stride + h * a.attrs.key_dim + d] * a.attrs.scale;
  }
  __syncthreads();
  float m = -INFINITY, l = 0, values[kOwn] = {};
  const int from = first_taken(a, t);
  const PieceRange range = piece_range(from, positions, parts.splits, split);
  for (int piece = range.begin; piece < range.end; ++piece) {
    const int count = min(kPiece, positions - piece * kPiece);
    const int begin = max(0, from - piece * kPiece);
    for (int p = begin + warp; p < count; p += kThreads / 32) {
      const TakenKey key = taken_key(a, t, sequence, kv_head, piece * kPiece + p);
      float score = 0;
      for (int d = lane; d < a.attrs.key_dim; d += 32) {
        score = fmaf(q[d], kv_element(key.type, key.row, d), score);
      }
      score = warp_sum(score);
      if (a.attrs.softcap > 0) score = a.attrs.softcap * tanhf(score / a.attrs.softcap);
      if (lane == 0) weight[p] = score;
    }
    __syncthreads();
    float largest = m;
    for (int p = begin; p < count; ++p) largest = fmaxf(largest, weight[p]);
    const float shrink = m == -INFINITY ? 0 : __expf(m - largest);
    l *= shrink;
    for (int i = 0; i < kOwn; ++i) values[i] *= shrink;
    m = largest;
    for (int p = begin; p < count; ++p) {
      const float w = __expf(weight[p] - m);
      l += w;
      const int number = piece * kPiece + p;
      const TakenKey value =
          a.attrs.value_in_key
              ? taken_key(a, t, sequence, kv_head, number)
              : TakenKey{kv_value(a.kv, sequence, kv_head, taken_position(a, t, kv_head, number)),
                         a.kv.layout.type};
#pragma unroll
      for (int i = 0; i < kOwn; ++i) {
        const int d = thread + i * kThreads;
        if (d < a.attrs.value_dim)
          values[i] = fmaf(w, kv_element(value.type, value.row, d), values[i]);
      }
    }
    __syncthreads();
  }
  const int64_t part = (t * a.attrs.heads + h) * parts.splits + split;
  for (int i = 0; i < kOwn; ++i) {
    const int d = thread + i * kThreads;
    if (d >= a.attrs.value_dim) continue;
    if (parts.splits == 1) {
      a.y[t * a.y_stride + h * a.attrs.value_dim + d] = finished(a, h, values[i], m, l);
    } else {
      parts.values[part * a.attrs.value_dim + d] = values[i];
    }
  }
  if (parts.splits > 1 && thread == 0) parts.sums[part] = {m, l};
}

}  // namespace

Status launch_attention_any(const CudaAttentionArgs& a, const AttentionParts& parts,
                            cudaStream_t stream) {
  if (a.attrs.value_dim > kOwn * kThreads) {
    return Error{"attention: values of " + std::to_string(a.attrs.value_dim) +
                 " elements, at most 1024"};
  }
  const dim3 grid(parts.splits, a.attrs.heads, static_cast<unsigned>(a.tokens));
  return launch("attention", attention_any, grid, kThreads, a.attrs.key_dim * 4, stream, a, parts);
}

}  // namespace ktx::kernels

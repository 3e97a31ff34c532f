// What the kernels of attention for many rows (attention_wgmma.cu, attention_mma.cu) share: the
// rows of a block, (token, head) pairs that read one KV head; the runs of tokens of one sequence
// among them; scores that become weights; and the way of q in and of the sums out.
//
// Lane 4 * g + t has of 16 rows the rows g and g + 8, as mma_f16 and wgmma_f16 leave sums.
#pragma once

#include "kernels/cuda/attention/split_kv.cuh"
#include "kernels/cuda/rows/row_shape.cuh"

namespace ktx::kernels {

constexpr float kLog2E = 1.4426950408889634f;
// Sums are scaled anew only where a largest score has grown by more than that, in powers of two:
// weights stay below 2^kSlack.
constexpr float kSlack = 8;
// Rows of 64 halves, whose pieces of 16 bytes stand at piece ^ (row % 8); wider rows continue in
// the next panel.
constexpr int kPanelRow = 128;

__device__ __forceinline__ float exp2_of(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
// 1 - 2 / (1 + e^2x)
__device__ __forceinline__ float tanh_of(float x) {
  return fmaf(-2.0f, __frcp_rn(1 + exp2_of(2 * kLog2E * x)), 1.0f);
}

__device__ __forceinline__ int warp_least(int v) {
#if __CUDA_ARCH__ >= 800
  return __reduce_min_sync(~0u, v);
#else
  for (int o = 16; o > 0; o /= 2) v = min(v, __shfl_xor_sync(~0u, v, o));
  return v;
#endif
}

// The tokens of a block, as all of its warps see them.
template <int kMost>
struct BlockTokens {
  int sequence[kMost], position[kMost];
};

// Tokens [begin, end) of one sequence, and the positions [lowest, longest) that they see.
struct Run {
  int begin, end, lowest, longest;
};
template <int kMost>
__device__ __forceinline__ Run run_from(const BlockTokens<kMost>& of, int tokens, int begin,
                                        const AttentionAttrs& attrs, int lane) {
  const int sequence = of.sequence[begin];
  int end = tokens;
  for (int t = begin + 1 + lane; t < tokens; t += 32) {
    if (of.sequence[t] != sequence) {
      end = t;
      break;
    }
  }
  Run run{begin, warp_least(end), INT_MAX, 0};
  for (int t = begin + lane; t < run.end; t += 32) {
    const int position = of.position[t];
    run.longest = max(run.longest, position + 1);
    run.lowest = min(run.lowest, first_seen(attrs, max(position, 0)));
  }
  run.longest = -warp_least(-run.longest);
  run.lowest = warp_least(run.lowest);
  return run;
}

// Two rows of this lane's, 8 apart, and what their softmax has seen.
template <int kPositions>
struct RowWeights {
  static constexpr int kEights = kPositions / 8;
  int seen[2] = {0, 0}, from[2] = {0, 0};  // positions that a row sees: [from, seen)
  int least, latest;                       // seen and from, of all rows of the warp
  float largest[2] = {-INFINITY, -INFINITY};
  float total[2] = {0, 0};  // of this lane's columns
  float shrink[2];
  bool shrinks;  // of any row of the warp

  __device__ __forceinline__ void see(int r, int first, int end) { from[r] = first, seen[r] = end; }
  __device__ __forceinline__ void seen_all() {
    least = warp_least(min(seen[0], seen[1]));
    latest = -warp_least(min(-from[0], -from[1]));
  }

  // Scores of the positions from `first` on become weights.
  __device__ __forceinline__ void weigh(float (&s)[kEights][4], int first, float softcap,
                                        int column) {
    if (softcap > 0) {
      const float inverse = 1 / softcap;
#pragma unroll
      for (int j = 0; j < kEights; ++j) {
#pragma unroll
        for (int v = 0; v < 4; ++v) s[j][v] = softcap * tanh_of(s[j][v] * inverse);
      }
    }
    if (first + kPositions > least || first < latest) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const int end = seen[r] - first - column, begin = from[r] - first - column;
#pragma unroll
        for (int j = 0; j < kEights; ++j) {
#pragma unroll
          for (int v = 0; v < 2; ++v) {
            if (8 * j + v >= end || 8 * j + v < begin) s[j][2 * r + v] = -INFINITY;
          }
        }
      }
    }
    bool grows = false;
    float most[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      most[r] = fmaxf(s[0][2 * r], s[0][2 * r + 1]);
#pragma unroll
      for (int j = 1; j < kEights; ++j) {
        most[r] = fmaxf(most[r], fmaxf(s[j][2 * r], s[j][2 * r + 1]));
      }
      most[r] = fmaxf(most[r], __shfl_xor_sync(~0u, most[r], 1));
      most[r] = fmaxf(most[r], __shfl_xor_sync(~0u, most[r], 2));
      grows |= most[r] > largest[r] + kSlack / kLog2E;
    }
    shrinks = __any_sync(~0u, grows);
    if (shrinks) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const float larger = fmaxf(largest[r], most[r]);
        shrink[r] = larger == -INFINITY ? 1 : exp2_of((largest[r] - larger) * kLog2E);
        largest[r] = larger;
        total[r] *= shrink[r];
      }
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const float base = largest[r] == -INFINITY ? 0 : largest[r] * kLog2E;
      float sum[2] = {0, 0};
#pragma unroll
      for (int j = 0; j < kEights; ++j) {
#pragma unroll
        for (int v = 0; v < 2; ++v) {
          float& x = s[j][2 * r + v];
          x = exp2_of(fmaf(x, kLog2E, -base));
          sum[v] += x;
        }
      }
      total[r] += sum[0] + sum[1];
    }
  }
};

// Weights as A: step k has positions 16k .. 16k + 15.
template <int kSteps>
__device__ __forceinline__ void pack_weights(const float (&s)[2 * kSteps][4],
                                             uint32_t (&a)[kSteps][4]) {
#pragma unroll
  for (int k = 0; k < kSteps; ++k) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      a[k][2 * h] = pack_halves(s[2 * k + h][0], s[2 * k + h][1]);
      a[k][2 * h + 1] = pack_halves(s[2 * k + h][2], s[2 * k + h][3]);
    }
  }
}

// The width of a head as products have it: whole steps of 16 columns, zeros behind the head's own.
constexpr int whole_steps(int dim) {
  return (dim + 15) / 16 * 16;
}

// q of rows [first, first + count) of a block, in F16 and scaled, by 128 threads into panels of
// `count` rows.
template <int kDim>
__device__ __forceinline__ void put_rows(const CudaAttentionArgs& a, const BlockRows& block,
                                         int kv_head, int first, int count, uint8_t* panels,
                                         int thread) {
  constexpr int kParts = whole_steps(kDim) / 8;
  for (int i = thread; i < count * kParts; i += 128) {
    const int r = i / kParts, part = i % kParts, row = first + r;
    const int head = block.head(row);
    uint4 halves{0, 0, 0, 0};
    if (head >= 0 && part < kDim / 8) {
      const auto* x = reinterpret_cast<const float4*>(
          a.q + (block.first_token + row / block.heads) * a.q_stride +
          (kv_head * block.group + head) * kDim + 8 * part);
      const float4 low = x[0], high = x[1];
      const float scale = a.attrs.scale;
      halves = {
          pack_halves(low.x * scale, low.y * scale), pack_halves(low.z * scale, low.w * scale),
          pack_halves(high.x * scale, high.y * scale), pack_halves(high.z * scale, high.w * scale)};
    }
    *reinterpret_cast<uint4*>(panels + (part / 8 * count + r) * kPanelRow +
                              ((part % 8) ^ (r % 8)) * 16) = halves;
  }
}

// Row `row` of the block, row r of the lane's two: to y, or to the parts.
template <int kDim, int kPositions, int kEights>
__device__ __forceinline__ void write_row(const CudaAttentionArgs& a, const AttentionParts& parts,
                                          const BlockRows& block, int kv_head, int split, int row,
                                          const RowWeights<kPositions>& weights, int r,
                                          const float (&sums)[kEights][4], int lane) {
  float total = weights.total[r];
  total += __shfl_xor_sync(~0u, total, 1);
  total += __shfl_xor_sync(~0u, total, 2);
  if (block.head(row) < 0) return;
  const int64_t token = block.first_token + row / block.heads;
  const int head = kv_head * block.group + block.head(row);
  float* out = a.y + token * a.y_stride + head * kDim;
  float factor = 1;
  if (parts.splits > 1) {
    const int64_t part = (token * a.attrs.heads + head) * parts.splits + split;
    if (lane % 4 == 0) parts.sums[part] = {weights.largest[r], total};
    out = parts.values + part * kDim;
  } else {
    factor = softmax_factor(a.sinks, head, weights.largest[r], total);
  }
#pragma unroll
  for (int j = 0; j < kDim / 8; ++j) {
    *reinterpret_cast<float2*>(out + 8 * j + lane % 4 * 2) = {sums[j][2 * r] * factor,
                                                              sums[j][2 * r + 1] * factor};
  }
}

// Whether there are rows enough for these kernels, and q and y stand as they read and write them.
inline bool many_rows(const CudaAttentionArgs& a) {
  const auto aligned = [](const void* data, int64_t stride, int64_t floats) {
    return reinterpret_cast<uintptr_t>(data) % static_cast<uintptr_t>(floats * 4) == 0 &&
           stride % floats == 0;
  };
  return !has_list(a) && !a.text_end && !a.prepare.key && !a.attrs.value_in_key &&
         !a.one_token_per_sequence && a.attrs.value_dim == a.attrs.key_dim &&
         a.kv.layout.block_tokens % kPiece == 0 &&
         a.tokens * (a.attrs.heads / a.attrs.kv_heads) >= kLeastManyRows &&
         aligned(a.q, a.q_stride, 4) && aligned(a.y, a.y_stride, 2);
}

}  // namespace ktx::kernels

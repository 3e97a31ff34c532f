// The end of marlin_gemm_wgmma.cuh: the sums of sixteen warps, and of the blocks of a cluster,
// which have a range of columns each (split-K), in the order of the ranges.
//
//   store_wide_sums(sum, sums, warp, lane);                        // of a strip
//   // a barrier of the block
//   add_wide_sums<256, 128, false>(sums, tokens, split, splits, begin, write);
//
// Short code: it is met cold, once a block.
#pragma once

#include "kernels/cuda/common/cluster_sums.cuh"
#include "kernels/cuda/common/mma.cuh"
#include "kernels/cuda/matmul/marlin_products.cuh"

namespace ktx::kernels {

constexpr int kWideSumPitch = 20;  // floats a token: 16 rows, and no two lanes at one bank

// sums: [strip][token][row].
template <int kEights>
__device__ __forceinline__ void store_wide_sums(const float (&sum)[kEights][4], float* sums,
                                                int strip, int lane) {
  float* to = sums + (strip * 8 * kEights + lane % 4 * 2) * kWideSumPitch + lane / 4;
#pragma unroll
  for (int n = 0; n < kEights; ++n) {
#pragma unroll
    for (int v = 0; v < 4; ++v) to[(8 * n + v % 2) * kWideSumPitch + v / 2 * 8] = sum[n][v];
  }
}

// The first kThreads threads of the cluster's blocks. Calls begin(token, strip, quad of rows),
// which gives a float4, and with it write(token, strip, quad, that, float4 (&)[1 or, of gate and
// up, 2]) once for each; several are asked for at once.
template <int kThreads, int kTokens, bool kPaired, class Begin, class Write>
__device__ __forceinline__ void add_wide_sums(const float* sums, int tokens, int split, int splits,
                                              Begin begin, Write write) {
  constexpr int kSources = kPaired ? 2 : 1, kStrips = 16 / kSources, kAtOnce = 4;
  constexpr int kQuads = kStrips * kTokens * 4;
  if (splits > 1) meet_cluster();
#pragma unroll 1
  for (int first = split * kThreads + static_cast<int>(threadIdx.x); first < kQuads;
       first += kAtOnce * splits * kThreads) {
    float4 before[kAtOnce], v[kAtOnce][kSources] = {};
    int token[kAtOnce], strip[kAtOnce];
    const int quad = first % 4;
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int out = first + i * splits * kThreads;
      token[i] = out / 4 % kTokens, strip[i] = out / 4 / kTokens;
      if (out >= kQuads) token[i] = kTokens;
      if (token[i] < tokens) before[i] = begin(token[i], strip[i], quad);
    }
    const auto add = [&](auto part_of) {
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        if (token[i] >= tokens) continue;
#pragma unroll
        for (int m = 0; m < kSources; ++m) {
          const float4 part = part_of(reinterpret_cast<const float4*>(
              sums + ((strip[i] * kSources + m) * kTokens + token[i]) * kWideSumPitch + 4 * quad));
          v[i][m].x += part.x, v[i][m].y += part.y, v[i][m].z += part.z, v[i][m].w += part.w;
        }
      }
    };
    if (splits == 1) add([](const float4* from) { return *from; });
#pragma unroll 4
    for (int rank = 0; splits > 1 && rank < splits; ++rank) {
      add([&](const float4* from) { return load_of_rank(from, rank); });
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      if (token[i] < tokens) write(token[i], strip[i], quad, before[i], v[i]);
    }
  }
  if (splits > 1) wait_for_cluster();  // no block leaves while its sums are read
}

// Four rows from `out` on of a token (whole_quads: they are 16 aligned bytes of y): what they have
// before a product adds to it ...
__device__ __forceinline__ float4 read_quad(const MarlinProduct& p, bool whole_quads, int out,
                                            const float* y) {
  if (!p.accumulate || out <= -4 || out >= p.row_count) return {0, 0, 0, 0};
  if (whole_quads) return *reinterpret_cast<const float4*>(y + out);
  const auto at = [&](int i) { return out >= -i && out + i < p.row_count ? y[out + i] : 0; };
  return {at(0), at(1), at(2), at(3)};
}
// ... and after, of sums of one matrix or (paired) of gate and up.
template <bool kPaired>
__device__ __forceinline__ void write_quad(const MarlinProduct& p, bool whole_quads, int out,
                                           float4 before, const float4 (&v)[kPaired ? 2 : 1],
                                           float scale, float* y, int matrix) {
  float value[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const bool bias = p.bias[0] && out >= -i && out + i < p.row_count;
    value[i] = element(v[0], i) * scale + (bias ? p.bias_of(0, matrix, out + i) : 0);
    if constexpr (kPaired) {
      const float up = element(v[1], i) * scale + (bias ? p.bias_of(1, matrix, out + i) : 0);
      value[i] = row_glu(p.glu, value[i], up);
    }
    value[i] += element(before, i);
  }
  if (out <= -4 || out >= p.row_count) return;
  if (whole_quads) {
    *reinterpret_cast<float4*>(y + out) = {value[0], value[1], value[2], value[3]};
    return;
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if (out >= -i && out + i < p.row_count) y[out + i] = value[i];
  }
}

}  // namespace ktx::kernels

// The end of a product of few tokens: the sums of a block's warps, and of the blocks of its
// cluster (each has a range of columns), in a fixed order.
//
//   store_sums<2, 2>(total, sums, warp, lane);              // of this warp, to shared memory
//   add_sums<16, 2, false>(sums, place, [&](int token, int strip, int quad, auto& v) {
//     ...                                                   // rows 4 * quad on of that strip
//   });
//
// The blocks of a cluster read each other's shared memory; each takes a share of the outputs.
#pragma once

#include "kernels/cuda/common/mma.cuh"

namespace ktx::kernels {

constexpr int kMostSplits = 8;  // blocks of a cluster

__device__ __forceinline__ float element(const float4& v, int i) {
  return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w;
}

// sums: [warp][source][token][row of 16].
template <int kSources, int kColumns>
__device__ __forceinline__ void store_sums(const float (&total)[kSources][kColumns][4], float* sums,
                                           int warp, int lane) {
  constexpr int kTokens = 8 * kColumns;
#pragma unroll
  for (int m = 0; m < kSources; ++m) {
#pragma unroll
    for (int n = 0; n < kColumns; ++n) {
#pragma unroll
      for (int v = 0; v < 4; ++v) {
        const int token = 8 * n + lane % 4 * 2 + v % 2, row = lane / 4 + v / 2 * 8;
        sums[((warp * kSources + m) * kTokens + token) * 16 + row] = total[m][n][v];
      }
    }
  }
}

// How a block divides the work: block_strips groups of warps_per_strip warps; a group's strips are
// one, two neighbours (kSources), or gate and up (kPaired).
struct SumPlace {
  int tokens, block_strips, warps_per_strip, split, splits;
};

// All threads of the cluster's blocks call this. It calls write(token, strip of the block, quad of
// rows, float4 (&)[1, or 2 for gate and up]) once for each.
template <int kTokens, int kSources, bool kPaired, class Write>
__device__ __forceinline__ void add_sums(const float* sums, const SumPlace& at, Write write) {
  constexpr int kSums = kSources * 16 * kTokens;  // of a warp
  constexpr int kRowStrips = kPaired ? 1 : kSources;
  const int thread = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
  __syncthreads();
  if (at.splits > 1) meet_cluster();
  const int strips = at.block_strips * kRowStrips;
  for (int out = at.split * threads + thread; out < at.tokens * strips * 4;
       out += at.splits * threads) {
    const int quad = out % 4, local = out / 4 % strips, token = out / (4 * strips);
    const float4* from = reinterpret_cast<const float4*>(sums) +
                         (local / kRowStrips * at.warps_per_strip * kSums +
                          (local % kRowStrips * kTokens + token) * 16) /
                             4 +
                         quad;
    float4 v[kPaired ? 2 : 1] = {};
    for (int w = 0; w < at.warps_per_strip; ++w, from += kSums / 4) {
#pragma unroll
      for (int m = 0; m < (kPaired ? 2 : 1); ++m) {
        float4 part[kMostSplits];  // asked for all at once
#pragma unroll
        for (int s = 0; s < kMostSplits; ++s) {
          part[s] = s < at.splits ? load_of_rank(from + m * kTokens * 4, s) : float4{0, 0, 0, 0};
        }
#pragma unroll
        for (int s = 0; s < kMostSplits; ++s) {
          v[m].x += part[s].x, v[m].y += part[s].y, v[m].z += part[s].z, v[m].w += part[s].w;
        }
      }
    }
    write(token, local, quad, v);
  }
  if (at.splits > 1) wait_for_cluster();  // no block exits while its sums are read
}

}  // namespace ktx::kernels

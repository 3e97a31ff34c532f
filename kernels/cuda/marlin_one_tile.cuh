// A tile of weights times one token's activations (marlin_one_x.cuh), by a warp: see
// marlin_one.cuh for how.
//
//   float total[2] = {};                          // rows g and g + 8, over this lane's groups
//   add_tile<kType>(tile, spans, x, x_tile, lane, total);
#pragma once

#include "kernels/cuda/marlin_one_x.cuh"
#include "kernels/cuda/marlin_raw.cuh"

namespace ktx::kernels {

// Sums of a warp: rows g and g + 8 of a strip, over this lane's groups.
template <DType kType>
__device__ __forceinline__ void add_tile(const uint8_t* tile, int spans, const OneX& x, int x_tile,
                                         int lane, float (&total)[2]) {
  using Raw = MarlinRaw<kType>;
  using Tile = MarlinTile<kType>;
  constexpr int kSets = Raw::kSets;
  const int g = lane / 4, t = lane % 4;
  const float scale = x.scales[x_tile];
  uint4 b[kSets];
  float sum[kSets][2];  // of x over the lane's groups
  if constexpr (kSets == 1) {
    b[0] = x.halves[x_tile * 32 + lane];
    const float4 s = x.sums[x_tile * 4 + t];
    sum[0][0] = s.x + s.y, sum[0][1] = s.z + s.w;
  } else {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      b[h] = x.halves[x_tile * 32 + 16 * h + 4 * (g / 2) + t];
      if (t / 2 != g % 2) b[h] = uint4{0, 0, 0, 0};  // the other group of 16
      const float2 s = reinterpret_cast<const float2*>(x.sums)[x_tile * 8 + 4 * h + t];
      sum[h][0] = s.x, sum[h][1] = s.y;
    }
  }
  Raw raw;
  raw.load(tile, spans, lane);
  float kept[kSets][4] = {};  // rows g, g + 8 at the lane's two groups
#pragma unroll
  for (int c = 0; c < 8; ++c) {
    const int set = kSets == 2 ? c / 4 : 0;
    uint32_t a[2][4];
    raw.fragment(c, a);
    float product[4];
    mma_f16_new(product, a[0], b[set].x, b[set].y);
    mma_f16(product, a[1], b[set].z, b[set].w);
    if constexpr (kSets == 1) {
      if (t == c / 2) kept[0][c % 2] = product[c % 2], kept[0][2 + c % 2] = product[2 + c % 2];
    } else if (t == c % 4) {
#pragma unroll
      for (int i = 0; i < 4; ++i) kept[set][i] = product[i];
    }
  }
#pragma unroll
  for (int h = 0; h < kSets; ++h) {
    ScaleOffset s[2][2];  // rows g, g + 8 at the two groups
    if constexpr (requires { Raw::scale_offsets(tile, spans, g, t, s[0]); }) {
      Raw::scale_offsets(tile, spans, g, t, s[0]);
      Raw::scale_offsets(tile, spans, g + 8, t, s[1]);
    } else {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const int c = kSets == 2 ? 4 * h + t : 2 * t + e;
        const bool there = Tile::kWide || c < 2 * spans;
        s[0][e] = there ? Raw::scale_offset(tile, spans, g, c, e) : ScaleOffset{0, 0};
        s[1][e] = there ? Raw::scale_offset(tile, spans, g + 8, c, e) : ScaleOffset{0, 0};
      }
    }
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const float q0 = kept[h][e] - Raw::kEvenZero * sum[h][e];
      const float q1 = kept[h][2 + e] * Raw::kOddFactor - Raw::kOddZero * sum[h][e];
      total[0] += (s[0][e].scale * q0 + s[0][e].offset * sum[h][e]) * scale;
      total[1] += (s[1][e].scale * q1 + s[1][e].offset * sum[h][e]) * scale;
    }
  }
}

}  // namespace ktx::kernels

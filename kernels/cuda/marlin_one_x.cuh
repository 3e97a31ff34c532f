// The activations of one token in shared memory, ready for the tensor cores: per 256 columns
// as halves with a power of two taken out (so no value overflows), that scale, and the sums
// of every 16 of the halves, which the bias of the codes is multiplied by (marlin_raw.cuh).
#pragma once

#include "kernels/cuda/mma.cuh"

namespace ktx::kernels {

__device__ __forceinline__ float largest_of(const float4& v) {
  return fmaxf(fmaxf(fabsf(v.x), fabsf(v.y)), fmaxf(fabsf(v.z), fabsf(v.w)));
}
__device__ __forceinline__ float4 times(const float4& a, const float4& b) {
  return {a.x * b.x, a.y * b.y, a.z * b.z, a.w * b.w};
}
__device__ __forceinline__ float squares_of(const float4& v, float sum) {
  return fmaf(v.x, v.x, fmaf(v.y, v.y, fmaf(v.z, v.z, fmaf(v.w, v.w, sum))));
}

struct OneX {
  uint4* halves;   // [tile][lane]: columns 8 * lane .. 8 * lane + 7
  float4* sums;    // [tile][4]: of columns 16 * i .. 16 * i + 15
  float* scales;   // [tile]

  static constexpr int kTileBytes = 512 + 64 + 4;
  __host__ __device__ static int bytes(int tiles) { return (tiles * kTileBytes + 15) / 16 * 16; }
  __device__ OneX(uint8_t* memory, int tiles)
      : halves(reinterpret_cast<uint4*>(memory)),
        sums(reinterpret_cast<float4*>(memory + tiles * 512)),
        scales(reinterpret_cast<float*>(memory + tiles * 576)) {}

  // Tiles warp, warp + warps ... of x, times the weight of the norm if there is one. Gives this
  // lane's sum of squares of x itself then. Of several rows: row r begins at tile r * tiles.
  template <bool kNorm>
  __device__ __forceinline__ float load(const float* x, const float* norm, int cols, int tiles,
                                        int first_tile, int warp, int warps, int lane) const {
    constexpr int kBatch = kNorm ? 2 : 4;  // tiles on their way at once
    float squares = 0;
#pragma unroll 1
    for (int first = warp; first < tiles; first += kBatch * warps) {
      float4 v[kBatch][2], w[kBatch][2];
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        const int k = (first + i * warps) * 256 + 8 * lane;
        v[i][0] = v[i][1] = w[i][0] = w[i][1] = float4{0, 0, 0, 0};
        if (k >= cols) continue;
        v[i][0] = *reinterpret_cast<const float4*>(x + k);
        v[i][1] = *reinterpret_cast<const float4*>(x + k + 4);
        if constexpr (kNorm) {
          w[i][0] = *reinterpret_cast<const float4*>(norm + k);
          w[i][1] = *reinterpret_cast<const float4*>(norm + k + 4);
        }
      }
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        const int tile = first + i * warps;
        if (tile >= tiles) break;
        if constexpr (kNorm) {
          squares = squares_of(v[i][1], squares_of(v[i][0], squares));
          v[i][0] = times(v[i][0], w[i][0]), v[i][1] = times(v[i][1], w[i][1]);
        }
        put(first_tile + tile, v[i][0], v[i][1], lane);
      }
    }
    return squares;
  }

 private:
  __device__ __forceinline__ void put(int tile, const float4& low, const float4& high,
                                      int lane) const {
    const float largest = warp_largest(fmaxf(largest_of(low), largest_of(high)));
    int exponent = static_cast<int>(__float_as_uint(largest) >> 23) - 127 - 9;
    exponent = max(-100, min(100, exponent));
    const float inverse = __uint_as_float(static_cast<uint32_t>(127 - exponent) << 23);
    const uint4 b = {pack_halves(low.x * inverse, low.y * inverse),
                     pack_halves(low.z * inverse, low.w * inverse),
                     pack_halves(high.x * inverse, high.y * inverse),
                     pack_halves(high.z * inverse, high.w * inverse)};
    halves[tile * 32 + lane] = b;
    float sum = 0;
#pragma unroll
    for (const uint32_t pair : {b.x, b.y, b.z, b.w}) {
      const float2 two = __half22float2(as_half2(pair));
      sum += two.x + two.y;
    }
    sum += __shfl_xor_sync(~0u, sum, 1);
    if (lane % 2 == 0) reinterpret_cast<float*>(sums)[tile * 16 + lane / 2] = sum;
    if (lane == 0) scales[tile] = __uint_as_float(static_cast<uint32_t>(127 + exponent) << 23);
  }
};

}  // namespace ktx::kernels

// The activations of one token in shared memory, ready for integer tensor cores: per 256 columns
// whole numbers of 16 bits with a power of two taken out, as high and low bytes (256 * high + low),
// that scale, and the sums of every 16 of the numbers. An error is at most 2^-15 of the largest of
// the 256 columns. A scale is NaN where a column is not finite, and so is every product with it.
#pragma once

#include "kernels/cuda/common/mma.cuh"

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
  // [tile][lane 4g + t], g = 2 j + (0: high bytes, 1: low bytes): columns 8t .. 8t + 7 of chunks j
  // (x, y) and 4 + j (z, w) of 32, four and four in the order 0, 2, 1, 3 (marlin_bytes.cuh).
  uint4* bytes;
  float* sums;    // [tile][16]: of columns 16 * i .. 16 * i + 15
  float* scales;  // [tile]

  static constexpr int kTileBytes = 512 + 64 + 4;
  __host__ __device__ static int bytes_of(int tiles) { return (tiles * kTileBytes + 15) / 16 * 16; }
  __device__ OneX(uint8_t* memory, int tiles)
      : bytes(reinterpret_cast<uint4*>(memory)),
        sums(reinterpret_cast<float*>(memory + tiles * 512)),
        scales(reinterpret_cast<float*>(memory + tiles * 576)) {}

  // Loads tiles warp, warp + warps ... of x. With a norm, it multiplies by the norm's weight and
  // returns this lane's sum of squares of x itself. With several rows, row r begins at tile
  // r * tiles. kBatch: tiles on their way at once.
  template <bool kNorm, int kBatch = kNorm ? 2 : 4>
  __device__ __forceinline__ float load(const float* x, const float* norm, int cols, int tiles,
                                        int first_tile, int warp, int warps, int lane) const {
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

  // Tile `tile` from a lane's eight columns 8 * lane on of it.
  __device__ __forceinline__ void put(int tile, const float4& low, const float4& high,
                                      int lane) const {
    const float largest = warp_largest(fmaxf(largest_of(low), largest_of(high)));
    // 2^14 to 32512: above that (127 * 256) a high byte could be 128.
    int exponent = static_cast<int>((__float_as_uint(largest) + 0x20000) >> 23) - 127 - 14;
    exponent = max(-100, exponent);
    const float inverse = __uint_as_float(static_cast<uint32_t>(127 - exponent) << 23);
    const float v[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
    uint32_t bits[8];
    float sum = 0;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const float whole = fmaf(v[i], inverse, 12582912.0f);  // its low 16 bits: the number
      bits[i] = __float_as_uint(whole);
      sum += whole - 12582912.0f;
    }
    const auto four = [&](int first, uint32_t add, uint32_t byte) {
      const uint32_t pair = byte * 0x11 + 0x40;
      return __byte_perm(__byte_perm(bits[first] + add, bits[first + 2] + add, pair),
                         __byte_perm(bits[first + 1] + add, bits[first + 3] + add, pair), 0x5410);
    };
    const int c = lane / 4, t = lane % 4;
    auto* to = reinterpret_cast<uint2*>(bytes + tile * 32 + 8 * (c % 4) + t) + c / 4;
    to[0] = uint2{four(0, 128, 1), four(4, 128, 1)};
    to[8] = uint2{four(0, 0, 0), four(4, 0, 0)};
    const bool finite = __all_sync(~0u, fabsf(sum) <= 3e38f);
    sum += __shfl_xor_sync(~0u, sum, 1);
    if (lane % 2 == 0) sums[tile * 16 + lane / 2] = sum;
    const float scale = __uint_as_float(static_cast<uint32_t>(127 + exponent) << 23);
    if (lane == 0) scales[tile] = finite ? scale : NAN;
  }
};

}  // namespace ktx::kernels

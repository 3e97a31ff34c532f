// Activations of up to eight tokens on integer tensor cores (sm_90): what a warp keeps in registers
// of 256 columns, for all tiles that it multiplies by them.
//
//   BytesX<1> x;                                     // 1: up to four tokens, 2: up to eight
//   x.load(from, stride, tokens, inside, norm, memory, squares, lane);
//
// x is a whole number of 16 bits after a power of two per token and 256 columns, which is two
// bytes: 256 * high + low (marlin_gemv_x.cuh). The eight columns of B of mma.m16n8k32 are the high
// and the low bytes of four tokens; so lane 4 * g + t has of token g / 2 bytes of 8t .. 8t + 7 of
// each 32 columns, and of a product of token t the sums of high bytes and of low ones.
#pragma once

#include "kernels/cuda/gemv/marlin_gemv_x.cuh"

namespace ktx::kernels {

// c = a[16 x 32] * b[32 x 8] of bytes.
template <bool kSigned>
__device__ __forceinline__ void mma_bytes_new(int32_t (&c)[4], const uint32_t (&a)[4], uint32_t b0,
                                              uint32_t b1) {
  c[0] = c[1] = c[2] = c[3] = 0;
  mma_bytes<kSigned>(c, a, b0, b1);
}

// kHalves: sums of 16 columns are wanted, not of 32.
template <int kGroups, bool kHalves>
struct BytesX {
  static constexpr int kChunkBytes = 288;                   // 256, and 32 more: banks
  static constexpr int kBytes = kGroups * 8 * kChunkBytes;  // of the warp's shared memory, for load
  uint2 b[kGroups][8];                                      // of each 32 columns
  float scale[kGroups];                                     // of token 4 * group + t
  uint32_t sums[kGroups][kHalves ? 2 : 1];  // B fragments of sums / 64, as two halves each

  // v: of the lane's eight columns 8 * lane on; zeros of tokens that there are not.
  __device__ __forceinline__ void put(int n, int i, const float4& low, const float4& high,
                                      uint8_t* memory, int lane) {
    const float largest = warp_largest(fmaxf(largest_of(low), largest_of(high)));
    int exponent = static_cast<int>((__float_as_uint(largest) + 0x20000) >> 23) - 127 - 14;
    exponent = max(-100, exponent);
    const float inverse = __uint_as_float(static_cast<uint32_t>(127 - exponent) << 23);
    const float v[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
    uint32_t bits[8];
#pragma unroll
    for (int j = 0; j < 8; ++j) bits[j] = __float_as_uint(fmaf(v[j], inverse, 12582912.0f));
    const auto four = [&](int first, uint32_t add, uint32_t pair) {
      return __byte_perm(__byte_perm(bits[first] + add, bits[first + 2] + add, pair),
                         __byte_perm(bits[first + 1] + add, bits[first + 3] + add, pair), 0x5410);
    };
    auto* to =
        reinterpret_cast<uint2*>(memory + (n * 8 + lane / 4) * kChunkBytes + i * 64 + lane % 4 * 8);
    to[0] = uint2{four(0, 128, 0x51), four(4, 128, 0x51)};
    to[4] = uint2{four(0, 0, 0x40), four(4, 0, 0x40)};
    const float power = __uint_as_float(static_cast<uint32_t>(127 + exponent) << 23);
    // (Infinity and NaN have the largest bits.)
    if (lane % 4 == i) scale[n] = largest < INFINITY ? power : NAN;
  }
  // The fragments back from shared memory, and their sums.
  __device__ __forceinline__ void take(const uint8_t* memory, int lane) {
    const int g = lane / 4, t = lane % 4;
    const uint32_t ones[4] = {0x01010101, 0x01010101, 0x01010101, 0x01010101};
#pragma unroll
    for (int n = 0; n < kGroups; ++n) {
      float chosen[kHalves ? 4 : 2];
#pragma unroll
      for (int c = 0; c < 8; ++c) {
        b[n][c] = reinterpret_cast<const uint2*>(memory + (n * 8 + c) * kChunkBytes)[lane];
        if constexpr (kHalves) {
          // Columns 16 .. of 32 are with the lanes of t = 2, 3.
#pragma unroll
          for (int h = 0; h < 2; ++h) {
            int32_t s[4];
            const bool own = t / 2 == h;
            mma_bytes_new<true>(s, ones, own ? b[n][c].x : 0, own ? b[n][c].y : 0);
            const auto sum = static_cast<float>(256 * s[0] + s[1]);
            if (c % 4 == g % 4) chosen[2 * (c / 4) + h] = sum;
          }
        } else {
          int32_t s[4];
          mma_bytes_new<true>(s, ones, b[n][c].x, b[n][c].y);
          const auto sum = static_cast<float>(256 * s[0] + s[1]);
          if (c / 2 == g % 4) chosen[c % 2] = sum;
        }
      }
      // That of token g / 2 for the columns of B's rows 2t, 2t + 1 (and 8 on).
#pragma unroll
      for (int i = 0; i < (kHalves ? 2 : 1); ++i) {
        float two[2];
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const float sum = __shfl_sync(~0u, chosen[2 * i + e], 4 * t + g / 2) * 0.015625f;
          const float high = __half2float(__float2half_rn(sum));
          two[e] = g % 2 ? sum - high : high;
        }
        sums[n][i] = pack_halves(two[0], two[1]);
      }
    }
  }
};

}  // namespace ktx::kernels

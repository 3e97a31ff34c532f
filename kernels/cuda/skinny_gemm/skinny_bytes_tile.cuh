// A tile of 16 rows and 256 columns, where it lies in shared memory, times the activations of up to
// eight tokens (skinny_bytes_x.cuh), by one warp on integer tensor cores.
//
//   float out[kGroups][2];                       // rows g and g + 8, token 4 * group + t
//   BytesTile<DType::Q4_K>::multiply(tile, x, lane, out);
//
// A chunk's sums are whole numbers; they are multiplied by the chunk's scale and added up as whole
// numbers too (at most 2^29), so that only the sums of a tile are rounded to F32.
#pragma once

#include "kernels/cuda/marlin/marlin_bytes.cuh"
#include "kernels/cuda/skinny_gemm/skinny_bytes_x.cuh"

namespace ktx::kernels {

// c = a[16 x 8] * b[8 x 8] of halves.
__device__ __forceinline__ void mma_f16_k8(float (&c)[4], uint32_t a0, uint32_t a1, uint32_t b) {
  asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, "
      "{%7,%7,%7,%7};"
      : "=f"(c[0]), "=f"(c[1]), "=f"(c[2]), "=f"(c[3])
      : "r"(a0), "r"(a1), "r"(b), "f"(0.0f));
}

// Bytes i of two words as halves less `zero` (the words have it added).
__device__ __forceinline__ uint32_t byte_halves(uint32_t low, uint32_t high, uint32_t i,
                                                float zero) {
  const uint32_t two = __byte_perm(low, high, i | (4 + i) << 4);
  const uint32_t wide = __byte_perm(two, 0x64646464, 0x4140);
  return as_bits(__hsub2(as_half2(wide), __float2half2_rn(1024 + zero)));
}

// Byte i of a word with its sign. (__byte_perm takes no signs.)
__device__ __forceinline__ int32_t signed_byte(uint32_t word, uint32_t i) {
  int32_t v;
  asm("prmt.b32 %0, %1, 0, %2;" : "=r"(v) : "r"(word), "r"((i + 8) * 0x1110 + i));
  return v;
}

template <DType kType>
struct BytesTile;

// For Q4_K and Q5_K. Codes::chunk(tile, c, lane, a): A of columns 32c on; kHeader: where the
// headers of the rows begin; kOdd: what the codes of rows g + 8 are multiplied by.
template <class Codes>
struct ScaleMinBytesTile {
  static constexpr bool kHalves = false;
  template <int kGroups>
  __device__ __forceinline__ static void multiply(const uint8_t* tile,
                                                  const BytesX<kGroups, false>& x, int lane,
                                                  float (&out)[kGroups][2]) {
    const int g = lane / 4, t = lane % 4;
    uint32_t scales[2][2], minima[2];
    half2 d[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const uint4 h = load_as<uint4>(tile + Codes::kHeader + (g + 8 * r) * 16);
      d[r] = as_half2(h.x);
      scales[r][0] = and_or(h.w << 4, 0x30303030, h.y & 0x0f0f0f0f);
      scales[r][1] = and_or(h.w << 2, 0x30303030, h.y >> 4 & 0x0f0f0f0f);
      const uint32_t four = and_or(h.w >> (t / 2 * 2), 0x30303030, h.z >> (t / 2 * 4) & 0x0f0f0f0f);
      const uint32_t two = __byte_perm(four, 0x64646464, t % 2 ? 0x4342 : 0x4140);
      minima[r] = as_bits(__hsub2(as_half2(two), __float2half2_rn(1024)));
    }
    int32_t total[kGroups][4] = {};
    Codes codes;
#pragma unroll
    for (int c = 0; c < 8; ++c) {
      uint32_t a[4];
      codes.chunk(tile, c, lane, a);
      int32_t scale[2];
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        scale[r] = static_cast<int32_t>(__byte_perm(scales[r][c / 4], 0, 0x4440 + c % 4));
      }
#pragma unroll
      for (int n = 0; n < kGroups; ++n) {
        int32_t sum[4];
        mma_bytes_new<false>(sum, a, x.b[n][c].x, x.b[n][c].y);
#pragma unroll
        for (int v = 0; v < 4; ++v) total[n][v] += scale[v / 2] * sum[v];
      }
    }
#pragma unroll
    for (int n = 0; n < kGroups; ++n) {
      float minimum[4];
      mma_f16_k8(minimum, minima[0], minima[1], x.sums[n][0]);
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const float2 both = __half22float2(d[r]);
        const float sum = fmaf(static_cast<float>(total[n][2 * r]), 256.0f,
                               static_cast<float>(total[n][2 * r + 1]));
        const float factor = r ? both.x * (1.0f / Codes::kOdd) : both.x;
        out[n][r] =
            (sum * factor - (minimum[2 * r] + minimum[2 * r + 1]) * (64.0f * both.y)) * x.scale[n];
      }
    }
  }
};

struct NibblesOfTile {
  static constexpr int kHeader = 2048, kOdd = 16;
  uint4 codes;
  __device__ __forceinline__ uint32_t word(const uint8_t* tile, int c, int s, int lane) {
    if (c % 2 == 0 && s == 0) codes = load_as<uint4>(tile + c / 2 * 512 + lane * 16);
    return word_of(codes, 2 * (c % 2) + s);
  }
  __device__ __forceinline__ void chunk(const uint8_t* tile, int c, int lane, uint32_t (&a)[4]) {
#pragma unroll
    for (int s = 0; s < 2; ++s) {
      const uint32_t w = word(tile, c, s, lane);
      a[2 * s] = w & 0x0f0f0f0f;
      a[2 * s + 1] = w & 0xf0f0f0f0;
    }
  }
};
struct FiveBitsOfTile : NibblesOfTile {
  static constexpr int kHeader = 2560, kOdd = 1;
  FifthBits<true> high;
  __device__ __forceinline__ void chunk(const uint8_t* tile, int c, int lane, uint32_t (&a)[4]) {
    if (c == 0) high.load<false>(tile + 2048, 4, lane);
#pragma unroll
    for (int s = 0; s < 2; ++s) {
      const uint32_t w = word(tile, c, s, lane);
      const OneHighBit bits = high.of(c, s);
      five_bits(w, bits.word >> bits.first, a[2 * s], a[2 * s + 1]);
    }
  }
};
template <>
struct BytesTile<DType::Q4_K> : ScaleMinBytesTile<NibblesOfTile> {};
template <>
struct BytesTile<DType::Q5_K> : ScaleMinBytesTile<FiveBitsOfTile> {};

// Scales are signed bytes of 16 columns, those of t = 0, 1 and of t = 2, 3; codes have 32 added.
template <>
struct BytesTile<DType::Q6_K> {
  static constexpr bool kHalves = true;
  template <int kGroups>
  __device__ __forceinline__ static void multiply(const uint8_t* tile,
                                                  const BytesX<kGroups, true>& x, int lane,
                                                  float (&out)[kGroups][2]) {
    const int g = lane / 4, t = lane % 4;
    uint4 scales[2];  // words: chunks 0 .. 3 and 4 .. 7 of the first halves, and of the second
#pragma unroll
    for (int r = 0; r < 2; ++r) scales[r] = load_as<uint4>(tile + 3072 + (g + 8 * r) * 16);
    int32_t total[kGroups][4] = {};
    NibblesOfTile codes;
    uint4 high;
#pragma unroll
    for (int c = 0; c < 8; ++c) {
      if (c % 4 == 0) high = load_as<uint4>(tile + 2048 + c / 4 * 512 + 16 * lane);
      uint32_t a[4];
#pragma unroll
      for (int s = 0; s < 2; ++s) {
        const uint32_t w = codes.word(tile, c, s, lane);
        const uint32_t two = __byte_perm(word_of(high, c % 4), 0, s ? 0x3311 : 0x2200);
        a[2 * s] = and_or(two, 0x30003000, w & 0x0f0f0f0f);
        a[2 * s] = and_or(two << 4, 0x00300030, a[2 * s]);
        a[2 * s + 1] = and_or(two >> 2, 0x30003000, w >> 4 & 0x0f0f0f0f);
        a[2 * s + 1] = and_or(two << 2, 0x00300030, a[2 * s + 1]);
      }
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const bool own = t / 2 == h;
        int32_t scale[2];
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          scale[r] = signed_byte(word_of(scales[r], 2 * h + c / 4), c % 4);
        }
#pragma unroll
        for (int n = 0; n < kGroups; ++n) {
          int32_t sum[4];
          mma_bytes_new<false>(sum, a, own ? x.b[n][c].x : 0, own ? x.b[n][c].y : 0);
#pragma unroll
          for (int v = 0; v < 4; ++v) total[n][v] += scale[v / 2] * sum[v];
        }
      }
    }
    uint32_t groups[4];  // A of the scales
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const uint4 s = {scales[r].x ^ 0x80808080, scales[r].y ^ 0x80808080, scales[r].z ^ 0x80808080,
                       scales[r].w ^ 0x80808080};
      groups[r] = byte_halves(s.x, s.z, t, 128);
      groups[2 + r] = byte_halves(s.y, s.w, t, 128);
    }
#pragma unroll
    for (int n = 0; n < kGroups; ++n) {
      float zero[4];
      mma_f16_new(zero, groups, x.sums[n][0], x.sums[n][1]);
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const float d = __half2float(load_as<half>(tile + 3328 + 16 * r + 2 * g));
        const float sum = fmaf(static_cast<float>(total[n][2 * r]), 256.0f,
                               static_cast<float>(total[n][2 * r + 1]));
        out[n][r] = (sum - (zero[2 * r] + zero[2 * r + 1]) * (32.0f * 64.0f)) * (d * x.scale[n]);
      }
    }
  }
};

}  // namespace ktx::kernels

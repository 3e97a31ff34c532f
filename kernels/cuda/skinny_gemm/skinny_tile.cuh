// A tile of the marlin layout times the records of a batch (skinny_x.h).
//
//   BatchTile<DType::Q4_K> tile;
//   tile.load(bytes, spans, lane);
//   tile.fragment(c, a);                 // A fragments of columns 32c .. 32c + 31
//   tile.add(sum, ..., total);           // after all eight: total += the tile's products
//
// Most formats: fragments are weights in F16 (marlin_tile.cuh). Q4_K and Q5_K, whose weights
// are d * s * q - dmin * m with whole s, q, m: fragments are s * q, which F16 holds exactly
// (at most 63 * 31), by one fused multiply-add a pair, (1024 + q) * s - 1024 * s. The minima
// are one more product for the whole tile, of m with the sums of x over chunks; d and dmin
// come last, in F32. So nothing of a weight is rounded, and 9 instructions of 13 remain.
#pragma once

#include "kernels/cuda/marlin/marlin_tile.cuh"

namespace ktx::kernels {

// Scales of eight tokens, two in each lane.
struct BatchScales {
  uint2 sums;  // B fragment of the sums of x
  float2 x;    // scales of the lane's tokens
};

template <DType kType>
struct BatchTile {
  MarlinTile<kType> tile;
  __device__ __forceinline__ void load(const uint8_t* bytes, int spans, int lane) {
    tile.template load<false>(bytes, spans, lane);
  }
  __device__ __forceinline__ void fragment(int c, uint32_t (&a)[8]) const { tile.fragment(c, a); }
  template <int kColumns>
  __device__ __forceinline__ void add(const float (&sum)[kColumns][4],
                                      const BatchScales (&scales)[kColumns], int,
                                      float (&total)[kColumns][4]) const {
#pragma unroll
    for (int n = 0; n < kColumns; ++n) {
#pragma unroll
      for (int v = 0; v < 4; ++v)
        total[n][v] += sum[n][v] * (v % 2 ? scales[n].x.y : scales[n].x.x);
    }
  }
};

// The scales of 32 columns for rows g and (a sixteenth of it) g + 8, and -1024 times each.
struct WholeScales {
  half2 even, odd, even_zero, odd_zero;
};
// The four pairs of a step as whole products s * q.
template <class High>
__device__ __forceinline__ void whole_pairs(uint32_t word, High high, const WholeScales& scales,
                                            uint32_t* a) {
#pragma unroll
  for (int p = 0; p < 4; p += 2) {
    const uint32_t w = word >> (4 * p);
    const half2 low = as_half2(and_or(w, 0x000f000f, 0x64006400) | high(p));
    const half2 up = as_half2(and_or(w, 0x00f000f0, 0x64006400) | high(p + 1));
    a[p] = as_bits(__hfma2(low, scales.even, scales.even_zero));
    a[p + 1] = as_bits(__hfma2(up, scales.odd, scales.odd_zero));
  }
}

// Codes that stay in shared memory until they are used: registers are scarce.
struct NibblesInPlace {
  static constexpr int kSpanBytes = 512;
  const uint8_t* own;  // this lane's
  __device__ __forceinline__ void bring(const uint8_t* bytes, int lane) { own = bytes + 16 * lane; }
  __device__ __forceinline__ uint32_t word(int c, int s) const {
    return word_of(load_as<uint4>(own + c / 2 * 512), 2 * (c % 2) + s);
  }
  __device__ __forceinline__ NoHighBits high(int, int) const { return {}; }
};
struct FiveBitsInPlace : NibblesInPlace {
  static constexpr int kSpanBytes = 640;
  FifthBits<true> bits;
  __device__ __forceinline__ void bring(const uint8_t* bytes, int lane) {
    NibblesInPlace::bring(bytes, lane);
    bits.load<false>(bytes + 2048, 4, lane);
  }
  __device__ __forceinline__ OneHighBit high(int c, int s) const { return bits.of(c, s); }
};

template <class Codes>
struct ScaleMinBatchTile {
  Codes codes;
  const uint8_t* headers;         // of this lane's row g; that of g + 8 is 128 bytes on
  uint32_t low[2], high_bits[2];  // of the scales of rows g and g + 8
  __device__ __forceinline__ void load(const uint8_t* bytes, int, int lane) {
    codes.bring(bytes, lane);
    headers = bytes + 4 * Codes::kSpanBytes + lane / 4 * 16;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const uint4 row = load_as<uint4>(headers + 128 * r);
      low[r] = row.y, high_bits[r] = row.w;
    }
  }
  // 1024 + the scales of chunks c and c + 2, c % 4 being 0 or 1.
  __device__ __forceinline__ half2 biased_scales(int r, int c) const {
    const int right = 8 * (c % 2) + 4 * (c / 4);
    const uint32_t bits = and_or(low[r] >> right, 0x000f000f, 0x64006400);
    return as_half2(and_or(shifted(high_bits[r], right - (c < 4 ? 4 : 6)), 0x00300030, bits));
  }
  __device__ __forceinline__ void fragment(int c, uint32_t (&a)[8]) const {
    const int first = c / 4 * 4 + c % 2, which = c % 4 / 2;
    const half2 even = __hsub2(biased_scales(0, first), __float2half2_rn(1024));
    const half2 odd =
        __hfma2(biased_scales(1, first), __float2half2_rn(0.0625f), __float2half2_rn(-64));
    const half2 bias = __float2half2_rn(-1024);
    const WholeScales scales = {both(even, which), both(odd, which),
                                both(__hmul2(even, bias), which), both(__hmul2(odd, bias), which)};
#pragma unroll
    for (int s = 0; s < 2; ++s) whole_pairs(codes.word(c, s), codes.high(c, s), scales, a + 4 * s);
  }
  template <int kColumns>
  __device__ __forceinline__ void add(const float (&sum)[kColumns][4],
                                      const BatchScales (&scales)[kColumns], int lane,
                                      float (&total)[kColumns][4]) const {
    // Minima of chunks 2t and 2t + 1, once for the sums and once for what those lost.
    const int t = lane % 4, upper = t / 2;
    uint32_t a[4];
    float2 d[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const uint4 row = load_as<uint4>(headers + 128 * r);  // again: registers are scarce
      const uint32_t minima =
          (row.z >> (4 * upper) & 0x0f0f0f0f) | (row.w >> (2 * upper) & 0x30303030);
      const uint32_t two = __byte_perm(minima, 0x64646464, t % 2 ? 0x4342 : 0x4140);
      a[r] = a[2 + r] = as_bits(__hsub2(as_half2(two), __float2half2_rn(1024)));
      d[r] = __half22float2(as_half2(row.x));
    }
#pragma unroll
    for (int n = 0; n < kColumns; ++n) {
      float minimum[4];
      mma_f16_new(minimum, a, scales[n].sums.x, scales[n].sums.y);
#pragma unroll
      for (int v = 0; v < 4; ++v) {
        const float x = v % 2 ? scales[n].x.y : scales[n].x.x;
        total[n][v] += (d[v / 2].x * sum[n][v] - d[v / 2].y * minimum[v]) * x;
      }
    }
  }
};
template <>
struct BatchTile<DType::Q4_K> : ScaleMinBatchTile<NibblesInPlace> {};
template <>
struct BatchTile<DType::Q5_K> : ScaleMinBatchTile<FiveBitsInPlace> {};

}  // namespace ktx::kernels

// The scale planes of a marlin tile in a warp's registers.
//
//   HalfScales scales;
//   scales.load(plane, spans, lane);         // of rows g and g + 8, lane = 4g + t
//   scales.rows(c).scale(q, a);              // pairs of codes to weights, as A fragments
//
// A weight is rounded once: F16(scale * code - min), scale and min themselves being F16
// (block formats have them in F16; of Q4_K ... IQ4_XS the products d * scale are rounded to
// it). kWide: of blocks of 256 columns, so a tile always has four spans.
#pragma once

#include "kernels/cuda/marlin/marlin_codes.cuh"

namespace ktx::kernels {

__device__ __forceinline__ half2 both(half2 v, int which) {
  return which ? __high2half2(v) : __low2half2(v);
}

// What rows g and g + 8 have for 32 columns. Pairs 0, 2 are of row g, 1, 3 of row g + 8.
struct RowScales {
  half2 s0, s1;
  __device__ __forceinline__ void scale(const half2 (&q)[4], uint32_t* a) const {
    a[0] = as_bits(__hmul2(q[0], s0));
    a[1] = as_bits(__hmul2(q[1], s1));
    a[2] = as_bits(__hmul2(q[2], s0));
    a[3] = as_bits(__hmul2(q[3], s1));
  }
};
struct RowScaleOffsets {
  half2 r0, r1;  // (scale, offset)
  __device__ __forceinline__ void scale(const half2 (&q)[4], uint32_t* a) const {
    a[0] = as_bits(__hfma2(q[0], both(r0, 0), both(r0, 1)));
    a[1] = as_bits(__hfma2(q[1], both(r1, 0), both(r1, 1)));
    a[2] = as_bits(__hfma2(q[2], both(r0, 0), both(r0, 1)));
    a[3] = as_bits(__hfma2(q[3], both(r1, 0), both(r1, 1)));
  }
};

// A half per row and 32 columns: words[r][i] has those of span i of row g + 8r.
struct HalfScales {
  static constexpr int kSpanBytes = 64;
  static constexpr bool kWide = false;
  uint32_t words[2][4];
  __device__ __forceinline__ void load(const uint8_t* plane, int spans, int lane) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const uint8_t* row = plane + (lane / 4 + 8 * r) * 4 * spans;
      if (spans == 4) {
        const uint4 v = load_as<uint4>(row);
        words[r][0] = v.x, words[r][1] = v.y, words[r][2] = v.z, words[r][3] = v.w;
      } else {
#pragma unroll
        for (int i = 0; i < 4; ++i) words[r][i] = i < spans ? load_as<uint32_t>(row + 4 * i) : 0;
      }
    }
  }
  __device__ __forceinline__ RowScales rows(int c) const {
    return {both(as_half2(words[0][c / 2]), c % 2), both(as_half2(words[1][c / 2]), c % 2)};
  }
};

// A scale and an offset per row and 32 columns: words[r][c].
struct HalfScaleOffsets {
  static constexpr int kSpanBytes = 128;
  static constexpr bool kWide = false;
  uint32_t words[2][8];
  __device__ __forceinline__ void load(const uint8_t* plane, int spans, int lane) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const uint8_t* row = plane + (lane / 4 + 8 * r) * 8 * spans;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const uint2 v = i < spans ? load_as<uint2>(row + 8 * i) : uint2{0, 0};
        words[r][2 * i] = v.x, words[r][2 * i + 1] = v.y;
      }
    }
  }
  __device__ __forceinline__ RowScaleOffsets rows(int c) const {
    return {as_half2(words[0][c]), as_half2(words[1][c])};
  }
};

// MXFP4: a power of two per row and 32 columns.
struct ExponentScales {
  static constexpr int kSpanBytes = 32;
  static constexpr bool kWide = false;
  uint32_t exponents[2][4];  // two bytes per span
  __device__ __forceinline__ void load(const uint8_t* plane, int spans, int lane) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const uint8_t* row = plane + (lane / 4 + 8 * r) * 2 * spans;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        exponents[r][i] = i < spans ? load_as<uint16_t>(row + 2 * i) : 0;
      }
    }
  }
  // 2^(exponent - 128) as a half: 0 below its range, infinity above.
  __device__ static half2 power(uint32_t exponent) {
    const int k = static_cast<int>(exponent) - 128;
    const uint32_t bits = k > 15     ? 0x7c00
                          : k >= -14 ? (k + 15) << 10
                          : k >= -24 ? 1 << (k + 24)
                                     : 0;
    return __half2half2(__ushort_as_half(static_cast<unsigned short>(bits)));
  }
  __device__ __forceinline__ RowScales rows(int c) const {
    return {power(exponents[0][c / 2] >> (8 * (c % 2)) & 255),
            power(exponents[1][c / 2] >> (8 * (c % 2)) & 255)};
  }
};

// The sixteen bytes of a row's header of Q4_K and Q5_K: (scale, -min) of a chunk.
struct ScaleMinHeader {
  static constexpr int kSpanBytes = 64;
  static constexpr bool kWide = true;
  uint4 row[2];
  __device__ __forceinline__ void load(const uint8_t* plane, int, int lane) {
    row[0] = load_as<uint4>(plane + (lane / 4) * 16);
    row[1] = load_as<uint4>(plane + (lane / 4 + 8) * 16);
  }
  __device__ __forceinline__ half2 scale_min(int r, int c) const {
    const uint4& h = row[r];
    uint32_t scales, mins;  // of chunks 0..3 or 4..7, a byte each
    if (c < 4) {
      scales = (h.y & 0x0f0f0f0f) | ((h.w << 4) & 0x30303030);
      mins = (h.z & 0x0f0f0f0f) | (h.w & 0x30303030);
    } else {
      scales = ((h.y >> 4) & 0x0f0f0f0f) | ((h.w << 2) & 0x30303030);
      mins = ((h.z >> 4) & 0x0f0f0f0f) | ((h.w >> 2) & 0x30303030);
    }
    const uint32_t bytes = __byte_perm(scales, mins, (c % 4) | (c % 4 + 4) << 8);
    const half2 integers = __hsub2(as_half2(and_or(bytes, 0x00ff00ff, 0x64006400)),
                                   __half2half2(__ushort_as_half(0x6400)));
    return __hmul2(integers, as_half2(h.x ^ 0x80000000));
  }
  __device__ __forceinline__ RowScaleOffsets rows(int c) const {
    return {scale_min(0, c), scale_min(1, c)};
  }
};

// Q6_K: a signed byte per row and 16 columns, times a half per row.
struct SixBitScales {
  static constexpr int kSpanBytes = 72;
  static constexpr bool kWide = true;
  uint2 bytes[2];  // of the lane's half of each chunk, a byte per chunk
  half2 factor;    // of rows g and g + 8
  __device__ __forceinline__ void load(const uint8_t* plane, int, int lane) {
    const int g = lane / 4;
    const uint8_t* half_chunk = plane + lane % 4 / 2 * 8;
    bytes[0] = load_as<uint2>(half_chunk + g * 16);
    bytes[1] = load_as<uint2>(half_chunk + (g + 8) * 16);
    factor = __halves2half2(load_as<half>(plane + 256 + 2 * g), load_as<half>(plane + 272 + 2 * g));
  }
  __device__ __forceinline__ RowScales rows(int c) const {
    const uint32_t two = __byte_perm(c < 4 ? bytes[0].x : bytes[0].y,
                                     c < 4 ? bytes[1].x : bytes[1].y, (c % 4) | (c % 4 + 4) << 8);
    const half2 integers = __hsub2(as_half2(and_or(two ^ 0x00800080, 0x00ff00ff, 0x64006400)),
                                   __half2half2(__ushort_as_half(0x6400 + 128)));
    const half2 products = __hmul2(integers, factor);
    return {both(products, 0), both(products, 1)};
  }
};

// IQ4_XS: six bits per row and 32 columns, times a half per row.
struct Iq4XsScales {
  static constexpr int kSpanBytes = 32;
  static constexpr bool kWide = true;
  uint2 row[2];  // half d, 16 bits of high scale bits; 32 bits of low ones
  __device__ __forceinline__ void load(const uint8_t* plane, int, int lane) {
    row[0] = load_as<uint2>(plane + (lane / 4) * 8);
    row[1] = load_as<uint2>(plane + (lane / 4 + 8) * 8);
  }
  __device__ __forceinline__ half2 scale(int r, int c) const {
    const uint2 h = row[r];
    const uint32_t bits = (h.y >> (4 * c) & 15) | (h.x >> (16 + 2 * c) & 3) << 4;
    const half integer = __hsub(__ushort_as_half(static_cast<unsigned short>(0x6400 | bits)),
                                __ushort_as_half(0x6400 + 32));
    return __half2half2(
        __hmul(integer, __ushort_as_half(static_cast<unsigned short>(h.x & 0xffff))));
  }
  __device__ __forceinline__ RowScales rows(int c) const { return {scale(0, c), scale(1, c)}; }
};

}  // namespace ktx::kernels

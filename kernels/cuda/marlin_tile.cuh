// A tile of the marlin layout in a warp's registers, and its weights as the A fragments of
// the tensor cores. One struct per format:
//
//   MarlinTile<DType::Q4_K> tile;
//   tile.load<true>(bytes, spans, lane);  // 16-byte loads, all before the first use
//   tile.fragment(c, lane, a);         // columns 32c .. 32c + 31: a[0..3] step 0, a[4..7] step 1
//
// Layout of the planes: kernels/matmul/marlin_layout.h. Codes become halves by the bias
// trick: 0x6400 | q is 1024 + q, and 0x6400 | q << 4 is 1024 + 16 q, so the nibbles of a
// pair need a mask and one exact subtraction or fused multiply-add. A weight is rounded
// once: F16(scale * code - min), scale and min themselves being F16 (block formats have
// them in F16; of Q4_K ... IQ4_XS the products d * scale are rounded to it).
// About 1.6 instructions a weight for nibbles, 2.1 with high bits; headers 0.2 to 0.7.
#pragma once

#include "kernels/cuda/mma.cuh"
#include "lib/formats/dtype.h"

namespace ktx::kernels {

template <DType kType>
struct MarlinTile;

// kGlobal: from global memory past L1, otherwise from shared memory.
template <bool kGlobal>
__device__ __forceinline__ uint4 load16(const uint8_t* p) {
  if constexpr (kGlobal) return load_stream(reinterpret_cast<const uint4*>(p));
  return *reinterpret_cast<const uint4*>(p);
}
template <class T>
__device__ __forceinline__ T load_as(const uint8_t* p) {
  return *reinterpret_cast<const T*>(p);
}

__device__ __forceinline__ uint32_t word_of(const uint4& v, int i) {
  return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w;
}

// The four code pairs of a step less kZero, as halves. high(p): the high bits of pair p,
// already at their place (bit 4 on for even pairs, bit 8 on for odd ones).
template <int kZero, class High>
__device__ __forceinline__ void code_pairs(uint32_t word, half2 (&q)[4], High high) {
  const half2 even = __half2half2(__ushort_as_half(0x6400 + kZero));  // 1024 + zero
  const half2 odd = __float2half2_rn(-64.0f - kZero);
  const half2 sixteenth = __float2half2_rn(0.0625f);
#pragma unroll
  for (int p = 0; p < 4; p += 2) {
    const uint32_t w = word >> (4 * p);
    const half2 low = as_half2(and_or(w, 0x000f000f, 0x64006400) | high(p));
    const half2 up = as_half2(and_or(w, 0x00f000f0, 0x64006400) | high(p + 1));
    q[p] = __hsub2(low, even);
    q[p + 1] = __hfma2(up, sixteenth, odd);
  }
}
struct NoHighBits {
  __device__ uint32_t operator()(int) const { return 0; }
};

__device__ __forceinline__ uint32_t shifted(uint32_t word, int right) {
  return right >= 0 ? word >> right : word << -right;
}
// One high bit per code: of chunk c, step s.
struct OneHighBit {
  uint32_t word;
  int first;  // 8 * (c % 2) + 4 * s
  __device__ uint32_t operator()(int p) const {
    return p % 2 == 0 ? shifted(word, first + p - 4) & 0x00100010
                      : shifted(word, first + p - 8) & 0x01000100;
  }
};
struct TwoHighBits {
  uint32_t word;
  int first;  // 8 * s
  __device__ uint32_t operator()(int p) const {
    return p % 2 == 0 ? shifted(word, first + 2 * p - 4) & 0x00300030
                      : shifted(word, first + 2 * p - 8) & 0x03000300;
  }
};

// Four pairs looked up in a table of 16 bytes (biased by 128), as halves.
struct ByteTable {
  uint32_t words[4];
};
__device__ __forceinline__ uint32_t look_up4(const ByteTable& table, uint32_t nibbles) {
  const uint32_t select = nibbles & 0x7777;
  const uint32_t low = __byte_perm(table.words[0], table.words[1], select);
  const uint32_t high = __byte_perm(table.words[2], table.words[3], select);
  return __byte_perm(low, high, 0x3210 | ((nibbles >> 1) & 0x4444));
}
__device__ __forceinline__ void table_pairs(const ByteTable& table, uint32_t word, half2 (&q)[4]) {
  const uint32_t first = look_up4(table, word & 0xffff);  // elements 0 of the pairs
  const uint32_t second = look_up4(table, word >> 16);
  const half2 bias = __half2half2(__ushort_as_half(0x6400 + 128));
#pragma unroll
  for (int p = 0; p < 4; ++p) {
    const uint32_t bytes = __byte_perm(first, second, p | (p + 4) << 8);
    q[p] = __hsub2(as_half2(and_or(bytes, 0x00ff00ff, 0x64006400)), bias);
  }
}
// kIq4Values + 128 and kMxfp4Doubled + 128.
__device__ __forceinline__ ByteTable iq4_table() {
  return {{0x3f2d1801, 0x766a5d4f, 0xa6998d81, 0xf1d9c5b5}};
}
__device__ __forceinline__ ByteTable mxfp4_table() {
  return {{0x83828180, 0x8c888684, 0x7d7e7f80, 0x74787a7c}};
}

// q * scale of the row: pairs 0, 2 are of row g, pairs 1, 3 of row g + 8.
__device__ __forceinline__ void scale_pairs(const half2 (&q)[4], half2 s0, half2 s1,
                                            uint32_t* a) {
  a[0] = as_bits(__hmul2(q[0], s0));
  a[1] = as_bits(__hmul2(q[1], s1));
  a[2] = as_bits(__hmul2(q[2], s0));
  a[3] = as_bits(__hmul2(q[3], s1));
}
__device__ __forceinline__ void scale_pairs(const half2 (&q)[4], half2 s0, half2 o0, half2 s1,
                                            half2 o1, uint32_t* a) {
  a[0] = as_bits(__hfma2(q[0], s0, o0));
  a[1] = as_bits(__hfma2(q[1], s1, o1));
  a[2] = as_bits(__hfma2(q[2], s0, o0));
  a[3] = as_bits(__hfma2(q[3], s1, o1));
}
__device__ __forceinline__ half2 both(half2 v, int which) {
  return which ? __high2half2(v) : __low2half2(v);
}

// Nibbles of up to four spans.
template <bool kGlobal>
__device__ __forceinline__ void load_nibbles(uint4 (&codes)[4], const uint8_t* tile, int spans,
                                             int lane) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    codes[i] = i < spans ? load16<kGlobal>(tile + i * 512 + lane * 16) : uint4{0, 0, 0, 0};
  }
}

// A half per row and 32 columns: words[r][i] has those of span i of row g + 8r.
__device__ __forceinline__ void load_scales(uint32_t (&words)[2][4], const uint8_t* plane,
                                            int spans, int lane) {
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
// A scale and an offset per row and 32 columns: words[r][c].
__device__ __forceinline__ void load_scale_offsets(uint32_t (&words)[2][8], const uint8_t* plane,
                                                   int spans, int lane) {
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

template <>
struct MarlinTile<DType::Q4_0> {
  static constexpr int kSpanBytes = 576;
  static constexpr bool kWide = false;
  uint4 codes[4];
  uint32_t scales[2][4];
  template <bool kGlobal>
  __device__ __forceinline__ void load(const uint8_t* tile, int spans, int lane) {
    load_nibbles<kGlobal>(codes, tile, spans, lane);
    load_scales(scales, tile + 512 * spans, spans, lane);
  }
  __device__ __forceinline__ void fragment(int c, int, uint32_t (&a)[8]) const {
    const half2 s0 = both(as_half2(scales[0][c / 2]), c % 2);
    const half2 s1 = both(as_half2(scales[1][c / 2]), c % 2);
#pragma unroll
    for (int s = 0; s < 2; ++s) {
      half2 q[4];
      code_pairs<8>(word_of(codes[c / 2], 2 * (c % 2) + s), q, NoHighBits{});
      scale_pairs(q, s0, s1, a + 4 * s);
    }
  }
};

template <>
struct MarlinTile<DType::IQ4_NL> {
  static constexpr int kSpanBytes = 576;
  static constexpr bool kWide = false;
  uint4 codes[4];
  uint32_t scales[2][4];
  template <bool kGlobal>
  __device__ __forceinline__ void load(const uint8_t* tile, int spans, int lane) {
    load_nibbles<kGlobal>(codes, tile, spans, lane);
    load_scales(scales, tile + 512 * spans, spans, lane);
  }
  __device__ __forceinline__ void fragment(int c, int, uint32_t (&a)[8]) const {
    const half2 s0 = both(as_half2(scales[0][c / 2]), c % 2);
    const half2 s1 = both(as_half2(scales[1][c / 2]), c % 2);
#pragma unroll
    for (int s = 0; s < 2; ++s) {
      half2 q[4];
      table_pairs(iq4_table(), word_of(codes[c / 2], 2 * (c % 2) + s), q);
      scale_pairs(q, s0, s1, a + 4 * s);
    }
  }
};

template <>
struct MarlinTile<DType::Q4_1> {
  static constexpr int kSpanBytes = 640;
  static constexpr bool kWide = false;
  uint4 codes[4];
  uint32_t scales[2][8];
  template <bool kGlobal>
  __device__ __forceinline__ void load(const uint8_t* tile, int spans, int lane) {
    load_nibbles<kGlobal>(codes, tile, spans, lane);
    load_scale_offsets(scales, tile + 512 * spans, spans, lane);
  }
  __device__ __forceinline__ void fragment(int c, int, uint32_t (&a)[8]) const {
    const half2 r0 = as_half2(scales[0][c]), r1 = as_half2(scales[1][c]);
#pragma unroll
    for (int s = 0; s < 2; ++s) {
      half2 q[4];
      code_pairs<0>(word_of(codes[c / 2], 2 * (c % 2) + s), q, NoHighBits{});
      scale_pairs(q, both(r0, 0), both(r0, 1), both(r1, 0), both(r1, 1), a + 4 * s);
    }
  }
};

template <>
struct MarlinTile<DType::Q5_0> {
  static constexpr int kSpanBytes = 704;
  static constexpr bool kWide = false;
  uint4 codes[4];
  uint32_t high[4];
  uint32_t scales[2][4];
  template <bool kGlobal>
  __device__ __forceinline__ void load(const uint8_t* tile, int spans, int lane) {
    load_nibbles<kGlobal>(codes, tile, spans, lane);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      high[i] = i < spans ? load_as<uint32_t>(tile + 512 * spans + 128 * i + 4 * lane) : 0;
    }
    load_scales(scales, tile + 640 * spans, spans, lane);
  }
  __device__ __forceinline__ void fragment(int c, int, uint32_t (&a)[8]) const {
    const half2 s0 = both(as_half2(scales[0][c / 2]), c % 2);
    const half2 s1 = both(as_half2(scales[1][c / 2]), c % 2);
#pragma unroll
    for (int s = 0; s < 2; ++s) {
      half2 q[4];
      code_pairs<16>(word_of(codes[c / 2], 2 * (c % 2) + s), q,
                     OneHighBit{high[c / 2], 8 * (c % 2) + 4 * s});
      scale_pairs(q, s0, s1, a + 4 * s);
    }
  }
};

template <>
struct MarlinTile<DType::Q5_1> {
  static constexpr int kSpanBytes = 768;
  static constexpr bool kWide = false;
  uint4 codes[4];
  uint32_t high[4];
  uint32_t scales[2][8];
  template <bool kGlobal>
  __device__ __forceinline__ void load(const uint8_t* tile, int spans, int lane) {
    load_nibbles<kGlobal>(codes, tile, spans, lane);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      high[i] = i < spans ? load_as<uint32_t>(tile + 512 * spans + 128 * i + 4 * lane) : 0;
    }
    load_scale_offsets(scales, tile + 640 * spans, spans, lane);
  }
  __device__ __forceinline__ void fragment(int c, int, uint32_t (&a)[8]) const {
    const half2 r0 = as_half2(scales[0][c]), r1 = as_half2(scales[1][c]);
#pragma unroll
    for (int s = 0; s < 2; ++s) {
      half2 q[4];
      code_pairs<0>(word_of(codes[c / 2], 2 * (c % 2) + s), q,
                    OneHighBit{high[c / 2], 8 * (c % 2) + 4 * s});
      scale_pairs(q, both(r0, 0), both(r0, 1), both(r1, 0), both(r1, 1), a + 4 * s);
    }
  }
};

template <>
struct MarlinTile<DType::Q8_0> {
  static constexpr int kSpanBytes = 1088;
  static constexpr bool kWide = false;
  uint4 codes[8];
  uint32_t scales[2][4];
  template <bool kGlobal>
  __device__ __forceinline__ void load(const uint8_t* tile, int spans, int lane) {
#pragma unroll
    for (int c = 0; c < 8; ++c) {
      codes[c] = c < 2 * spans ? load16<kGlobal>(tile + c * 512 + lane * 16) : uint4{0, 0, 0, 0};
    }
    load_scales(scales, tile + 1024 * spans, spans, lane);
  }
  __device__ __forceinline__ void fragment(int c, int, uint32_t (&a)[8]) const {
    const half2 s0 = both(as_half2(scales[0][c / 2]), c % 2);
    const half2 s1 = both(as_half2(scales[1][c / 2]), c % 2);
    const half2 bias = __half2half2(__ushort_as_half(0x6400 + 128));
#pragma unroll
    for (int s = 0; s < 2; ++s) {
      half2 q[4];
#pragma unroll
      for (int w = 0; w < 2; ++w) {
        const uint32_t bytes = word_of(codes[c], 2 * s + w) ^ 0x80808080;
        q[2 * w] = __hsub2(as_half2(__byte_perm(bytes, 0x64646464, 0x4140)), bias);
        q[2 * w + 1] = __hsub2(as_half2(__byte_perm(bytes, 0x64646464, 0x4342)), bias);
      }
      scale_pairs(q, s0, s1, a + 4 * s);
    }
  }
};

template <>
struct MarlinTile<DType::MXFP4> {
  static constexpr int kSpanBytes = 544;
  static constexpr bool kWide = false;
  uint4 codes[4];
  uint32_t exponents[2][4];  // two bytes per span
  template <bool kGlobal>
  __device__ __forceinline__ void load(const uint8_t* tile, int spans, int lane) {
    load_nibbles<kGlobal>(codes, tile, spans, lane);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const uint8_t* row = tile + 512 * spans + (lane / 4 + 8 * r) * 2 * spans;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        exponents[r][i] = i < spans ? load_as<uint16_t>(row + 2 * i) : 0;
      }
    }
  }
  // 2^(exponent - 128) as a half: 0 below its range, infinity above.
  __device__ static half2 power(uint32_t exponent) {
    const int k = static_cast<int>(exponent) - 128;
    const uint32_t bits = k > 15 ? 0x7c00 : k >= -14 ? (k + 15) << 10 : k >= -24 ? 1 << (k + 24) : 0;
    return __half2half2(__ushort_as_half(static_cast<unsigned short>(bits)));
  }
  __device__ __forceinline__ void fragment(int c, int, uint32_t (&a)[8]) const {
    const half2 s0 = power(exponents[0][c / 2] >> (8 * (c % 2)) & 255);
    const half2 s1 = power(exponents[1][c / 2] >> (8 * (c % 2)) & 255);
#pragma unroll
    for (int s = 0; s < 2; ++s) {
      half2 q[4];
      table_pairs(mxfp4_table(), word_of(codes[c / 2], 2 * (c % 2) + s), q);
      scale_pairs(q, s0, s1, a + 4 * s);
    }
  }
};

// The sixteen bytes of a row's header of Q4_K and Q5_K, and (scale, -min) of a chunk.
struct ScaleMinHeader {
  uint4 row[2];
  __device__ __forceinline__ void load(const uint8_t* plane, int lane) {
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
};

template <>
struct MarlinTile<DType::Q4_K> {
  static constexpr int kSpanBytes = 576;
  static constexpr bool kWide = true;
  uint4 codes[4];
  ScaleMinHeader header;
  template <bool kGlobal>
  __device__ __forceinline__ void load(const uint8_t* tile, int, int lane) {
    load_nibbles<kGlobal>(codes, tile, 4, lane);
    header.load(tile + 2048, lane);
  }
  __device__ __forceinline__ void fragment(int c, int, uint32_t (&a)[8]) const {
    const half2 r0 = header.scale_min(0, c), r1 = header.scale_min(1, c);
#pragma unroll
    for (int s = 0; s < 2; ++s) {
      half2 q[4];
      code_pairs<0>(word_of(codes[c / 2], 2 * (c % 2) + s), q, NoHighBits{});
      scale_pairs(q, both(r0, 0), both(r0, 1), both(r1, 0), both(r1, 1), a + 4 * s);
    }
  }
};

template <>
struct MarlinTile<DType::Q5_K> {
  static constexpr int kSpanBytes = 704;
  static constexpr bool kWide = true;
  uint4 codes[4];
  uint4 high;
  ScaleMinHeader header;
  template <bool kGlobal>
  __device__ __forceinline__ void load(const uint8_t* tile, int, int lane) {
    load_nibbles<kGlobal>(codes, tile, 4, lane);
    high = load16<kGlobal>(tile + 2048 + 16 * lane);
    header.load(tile + 2560, lane);
  }
  __device__ __forceinline__ void fragment(int c, int, uint32_t (&a)[8]) const {
    const half2 r0 = header.scale_min(0, c), r1 = header.scale_min(1, c);
#pragma unroll
    for (int s = 0; s < 2; ++s) {
      half2 q[4];
      code_pairs<0>(word_of(codes[c / 2], 2 * (c % 2) + s), q,
                    OneHighBit{word_of(high, c / 2), 8 * (c % 2) + 4 * s});
      scale_pairs(q, both(r0, 0), both(r0, 1), both(r1, 0), both(r1, 1), a + 4 * s);
    }
  }
};

template <>
struct MarlinTile<DType::Q6_K> {
  static constexpr int kSpanBytes = 840;
  static constexpr bool kWide = true;
  uint4 codes[4];
  uint4 high[2];
  uint2 scales[2];  // of the lane's half of each chunk, a byte per chunk
  half2 scale;      // of rows g and g + 8
  template <bool kGlobal>
  __device__ __forceinline__ void load(const uint8_t* tile, int, int lane) {
    load_nibbles<kGlobal>(codes, tile, 4, lane);
    high[0] = load16<kGlobal>(tile + 2048 + 16 * lane);
    high[1] = load16<kGlobal>(tile + 2560 + 16 * lane);
    const int g = lane / 4;
    const uint8_t* plane = tile + 3072 + lane % 4 / 2 * 8;
    scales[0] = load_as<uint2>(plane + g * 16);
    scales[1] = load_as<uint2>(plane + (g + 8) * 16);
    scale = __halves2half2(load_as<half>(tile + 3328 + 2 * g), load_as<half>(tile + 3344 + 2 * g));
  }
  __device__ __forceinline__ void fragment(int c, int, uint32_t (&a)[8]) const {
    const uint32_t bytes = __byte_perm(c < 4 ? scales[0].x : scales[0].y,
                                       c < 4 ? scales[1].x : scales[1].y,
                                       (c % 4) | (c % 4 + 4) << 8);
    const half2 integers = __hsub2(as_half2(and_or(bytes ^ 0x00800080, 0x00ff00ff, 0x64006400)),
                                   __half2half2(__ushort_as_half(0x6400 + 128)));
    const half2 rows = __hmul2(integers, scale);
#pragma unroll
    for (int s = 0; s < 2; ++s) {
      half2 q[4];
      code_pairs<32>(word_of(codes[c / 2], 2 * (c % 2) + s), q,
                     TwoHighBits{word_of(high[c / 4], c % 4), 8 * s});
      scale_pairs(q, both(rows, 0), both(rows, 1), a + 4 * s);
    }
  }
};

template <>
struct MarlinTile<DType::IQ4_XS> {
  static constexpr int kSpanBytes = 544;
  static constexpr bool kWide = true;
  uint4 codes[4];
  uint2 header[2];  // half d, 16 bits of high scale bits; 32 bits of low ones
  template <bool kGlobal>
  __device__ __forceinline__ void load(const uint8_t* tile, int, int lane) {
    load_nibbles<kGlobal>(codes, tile, 4, lane);
    header[0] = load_as<uint2>(tile + 2048 + (lane / 4) * 8);
    header[1] = load_as<uint2>(tile + 2048 + (lane / 4 + 8) * 8);
  }
  __device__ __forceinline__ half2 scale(int r, int c) const {
    const uint2 h = header[r];
    const uint32_t bits = (h.y >> (4 * c) & 15) | (h.x >> (16 + 2 * c) & 3) << 4;
    const half integer = __hsub(__ushort_as_half(static_cast<unsigned short>(0x6400 | bits)),
                                __ushort_as_half(0x6400 + 32));
    return __half2half2(__hmul(integer, __ushort_as_half(static_cast<unsigned short>(h.x & 0xffff))));
  }
  __device__ __forceinline__ void fragment(int c, int, uint32_t (&a)[8]) const {
    const half2 s0 = scale(0, c), s1 = scale(1, c);
#pragma unroll
    for (int s = 0; s < 2; ++s) {
      half2 q[4];
      table_pairs(iq4_table(), word_of(codes[c / 2], 2 * (c % 2) + s), q);
      scale_pairs(q, s0, s1, a + 4 * s);
    }
  }
};

// Where the tiles of a strip are.
template <class Tile>
struct MarlinTiles {
  int count, last_spans;  // all but the last have 4
  __device__ explicit MarlinTiles(int cols)
      : count((cols + 255) / 256), last_spans((cols + 63) / 64 - 4 * (count - 1)) {}
  __device__ int spans(int tile) const {
    if constexpr (Tile::kWide) return 4;
    return tile + 1 == count ? last_spans : 4;
  }
  __device__ static size_t offset(int tile) { return static_cast<size_t>(tile) * 4 * Tile::kSpanBytes; }
};

}  // namespace ktx::kernels

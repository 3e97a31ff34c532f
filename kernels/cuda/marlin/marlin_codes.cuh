// The code planes of a marlin tile in a warp's registers, and their codes as halves.
//
//   NibbleCodes<8> codes;                    // codes 0..15, 8 being weight 0
//   codes.load<true>(plane, spans, lane);    // 16-byte loads, all before the first use
//   half2 q[4];
//   codes.pairs(c, s, q);                    // step s of columns 32c .. 32c + 31
//
// Layout: kernels/matmul/marlin_layout.h. Codes become halves by the bias trick: 0x6400 | q
// is 1024 + q, and 0x6400 | q << 4 is 1024 + 16 q, so the nibbles of a pair need a mask and
// one exact subtraction or fused multiply-add. kSpanBytes: of a span of 64 columns.
#pragma once

#include "kernels/cuda/common/mma.cuh"
#include "lib/formats/dtype.h"

namespace ktx::kernels {

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
// kMxfp4Doubled + 128, or kIq4Values + 128.
template <DType kType>
__device__ __forceinline__ ByteTable code_table() {
  if constexpr (kType == DType::MXFP4) return {{0x83828180, 0x8c888684, 0x7d7e7f80, 0x74787a7c}};
  return {{0x3f2d1801, 0x766a5d4f, 0xa6998d81, 0xf1d9c5b5}};
}

// kZero: the code of weight 0.
template <int kZero>
struct NibbleCodes {
  static constexpr int kSpanBytes = 512;
  uint4 low[4];
  template <bool kGlobal>
  __device__ __forceinline__ void load(const uint8_t* plane, int spans, int lane) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      low[i] = i < spans ? load16<kGlobal>(plane + i * 512 + lane * 16) : uint4{0, 0, 0, 0};
    }
  }
  __device__ __forceinline__ uint32_t word(int c, int s) const {
    return word_of(low[c / 2], 2 * (c % 2) + s);
  }
  __device__ __forceinline__ void pairs(int c, int s, half2 (&q)[4]) const {
    code_pairs<kZero>(word(c, s), q, NoHighBits{});
  }
};

// Nibbles that choose from a table of bytes: MXFP4, IQ4_NL and IQ4_XS.
template <DType kType>
struct TableCodes : NibbleCodes<0> {
  __device__ __forceinline__ void pairs(int c, int s, half2 (&q)[4]) const {
    table_pairs(code_table<kType>(), word(c, s), q);
  }
};

// The fifth bits of a tile: a word per span. kWide: blocks of 256 columns.
template <bool kWide>
struct FifthBits {
  static constexpr int kSpanBytes = 128;
  uint32_t words[4];
  template <bool kGlobal>
  __device__ __forceinline__ void load(const uint8_t* plane, int spans, int lane) {
    if constexpr (kWide) {
      const uint4 v = load16<kGlobal>(plane + 16 * lane);
      words[0] = v.x, words[1] = v.y, words[2] = v.z, words[3] = v.w;
    } else {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        words[i] = i < spans ? load_as<uint32_t>(plane + 128 * i + 4 * lane) : 0;
      }
    }
  }
  __device__ __forceinline__ OneHighBit of(int c, int s) const {
    return {words[c / 2], 8 * (c % 2) + 4 * s};
  }
};
template <int kZero, bool kWide>
struct FiveBitCodes : NibbleCodes<kZero> {
  using Low = NibbleCodes<kZero>;
  static constexpr int kSpanBytes = Low::kSpanBytes + FifthBits<kWide>::kSpanBytes;
  FifthBits<kWide> high;
  template <bool kGlobal>
  __device__ __forceinline__ void load(const uint8_t* plane, int spans, int lane) {
    Low::template load<kGlobal>(plane, spans, lane);
    high.template load<kGlobal>(plane + Low::kSpanBytes * spans, spans, lane);
  }
  __device__ __forceinline__ void pairs(int c, int s, half2 (&q)[4]) const {
    code_pairs<kZero>(this->word(c, s), q, high.of(c, s));
  }
};

// Q6_K: always four spans.
struct SixBitCodes : NibbleCodes<32> {
  static constexpr int kSpanBytes = 768;
  uint4 high[2];
  template <bool kGlobal>
  __device__ __forceinline__ void load(const uint8_t* plane, int spans, int lane) {
    NibbleCodes<32>::load<kGlobal>(plane, spans, lane);
    high[0] = load16<kGlobal>(plane + 2048 + 16 * lane);
    high[1] = load16<kGlobal>(plane + 2560 + 16 * lane);
  }
  __device__ __forceinline__ TwoHighBits high_of(int c, int s) const {
    return {word_of(high[c / 4], c % 4), 8 * s};
  }
  __device__ __forceinline__ void pairs(int c, int s, half2 (&q)[4]) const {
    code_pairs<32>(word(c, s), q, high_of(c, s));
  }
};

// Q8_0.
struct ByteCodes {
  static constexpr int kSpanBytes = 1024;
  uint4 bytes[8];
  template <bool kGlobal>
  __device__ __forceinline__ void load(const uint8_t* plane, int spans, int lane) {
#pragma unroll
    for (int c = 0; c < 8; ++c) {
      bytes[c] = c < 2 * spans ? load16<kGlobal>(plane + c * 512 + lane * 16) : uint4{0, 0, 0, 0};
    }
  }
  // Pairs 2w and 2w + 1 as 1024 + 128 + code.
  __device__ __forceinline__ uint2 biased(int c, int s, int w) const {
    const uint32_t four = word_of(bytes[c], 2 * s + w) ^ 0x80808080;
    return {__byte_perm(four, 0x64646464, 0x4140), __byte_perm(four, 0x64646464, 0x4342)};
  }
  __device__ __forceinline__ void pairs(int c, int s, half2 (&q)[4]) const {
    const half2 bias = __half2half2(__ushort_as_half(0x6400 + 128));
#pragma unroll
    for (int w = 0; w < 2; ++w) {
      const uint2 v = biased(c, s, w);
      q[2 * w] = __hsub2(as_half2(v.x), bias);
      q[2 * w + 1] = __hsub2(as_half2(v.y), bias);
    }
  }
};

}  // namespace ktx::kernels

// Tiles of the marlin layout in shared memory, for the kernel of one token: codes as halves
// that still hold the bias of the trick, and scales as floats. A sum of such halves times x
// becomes the sum of weights times x by one scale, one offset and the sum of x:
//
//   half = 1024 + code                (row g)         half = 1024 + 16 * code   (row g + 8,
//                                                     where kOddFactor is 1/16)
//   sum of weight * x = scale * (factor * sum of half * x - zero * sum of x) + offset * sum of x
//
// so decoding costs an instruction per pair of weights (two with high bits, five with a
// table). scale_offset(tile, spans, row, c, h): of columns 32c + 16h on (h: Q6_K only);
// scale_offsets: of columns 64t on and 64t + 32 on at once, where that is shorter.
#pragma once

#include "kernels/cuda/marlin_tile.cuh"

namespace ktx::kernels {

template <DType kType>
struct MarlinRaw;

struct ScaleOffset {
  float scale, offset;
};

// 0..255 as a float.
__device__ __forceinline__ float small_float(uint32_t v) {
  return __uint_as_float(0x4b000000 | v) - 8388608.0f;
}
__device__ __forceinline__ float half_float(uint32_t bits) {
  return __half2float(__ushort_as_half(static_cast<unsigned short>(bits)));
}

template <class High>
__device__ __forceinline__ void raw_pairs(uint32_t word, uint32_t* a, High high) {
  a[0] = and_or(word, 0x000f000f, 0x64006400) | high(0);
  a[1] = and_or(word, 0x00f000f0, 0x64006400) | high(1);
  a[2] = and_or(word >> 8, 0x000f000f, 0x64006400) | high(2);
  a[3] = and_or(word >> 8, 0x00f000f0, 0x64006400) | high(3);
}
__device__ __forceinline__ void raw_table_pairs(const ByteTable& table, uint32_t word,
                                                uint32_t* a) {
  const uint32_t first = look_up4(table, word & 0xffff), second = look_up4(table, word >> 16);
#pragma unroll
  for (int p = 0; p < 4; ++p) {
    a[p] = and_or(__byte_perm(first, second, p | (p + 4) << 8), 0x00ff00ff, 0x64006400);
  }
}

// What the nibble formats share. kZero: the code of weight 0.
template <DType kType, int kZero>
struct NibbleRaw {
  static constexpr int kSets = 1;
  static constexpr float kOddFactor = 0.0625f;
  static constexpr float kEvenZero = 1024 + kZero, kOddZero = 64 + kZero;
  uint4 codes[4];
  __device__ __forceinline__ void load(const uint8_t* tile, int, int lane) {
#pragma unroll
    for (int i = 0; i < 4; ++i) codes[i] = load_as<uint4>(tile + i * 512 + lane * 16);
  }
  __device__ __forceinline__ uint32_t word(int c, int s) const {
    return word_of(codes[c / 2], 2 * (c % 2) + s);
  }
  __device__ __forceinline__ void fragment(int c, uint32_t (&a)[2][4]) const {
#pragma unroll
    for (int s = 0; s < 2; ++s) raw_pairs(word(c, s), a[s], NoHighBits{});
  }
};

__device__ __forceinline__ ScaleOffset plain_scale(const uint8_t* plane, int spans, int row, int c) {
  return {half_float(load_as<uint16_t>(plane + row * 4 * spans + 2 * c)), 0};
}
__device__ __forceinline__ ScaleOffset plain_scale_offset(const uint8_t* plane, int spans, int row,
                                                          int c) {
  const float2 v = __half22float2(load_as<half2>(plane + row * 8 * spans + 4 * c));
  return {v.x, v.y};
}
// Byte `i` of a word less nothing, times a factor that is exact: 2^23 + byte is a float.
struct ByteFactor {
  float factor, zero;
  __device__ explicit ByteFactor(float d) : factor(d), zero(-8388608.0f * d) {}
  __device__ float operator()(uint32_t word, int i) const {
    return fmaf(__uint_as_float(__byte_perm(word, 0x4b000000, 0x7440 + i)), factor, zero);
  }
};
// Of the 16-byte header of Q4_K and Q5_K (marlin_scalar.cc): columns 64t on and 64t + 32 on.
__device__ __forceinline__ void packed_scale_mins(const uint8_t* plane, int row, int t,
                                                  ScaleOffset (&out)[2]) {
  const uint4 h = load_as<uint4>(plane + row * 16);
  const int half = 16 * (t % 2), upper = t / 2;
  const uint32_t top = h.w >> (half + 2 * upper);
  const uint32_t scales = (h.y >> (half + 4 * upper) & 0x0f0f) | (top & 0x0303) << 4;
  const uint32_t mins = (h.z >> (half + 4 * upper) & 0x0f0f) | (top & 0x3030);
  const float2 d = __half22float2(as_half2(h.x));
  const ByteFactor scale(d.x), min(-d.y);
#pragma unroll
  for (int e = 0; e < 2; ++e) out[e] = {scale(scales, e), min(mins, e)};
}

template <>
struct MarlinRaw<DType::Q4_0> : NibbleRaw<DType::Q4_0, 8> {
  __device__ static ScaleOffset scale_offset(const uint8_t* tile, int spans, int row, int c, int) {
    return plain_scale(tile + 512 * spans, spans, row, c);
  }
};
template <>
struct MarlinRaw<DType::Q4_1> : NibbleRaw<DType::Q4_1, 0> {
  __device__ static ScaleOffset scale_offset(const uint8_t* tile, int spans, int row, int c, int) {
    return plain_scale_offset(tile + 512 * spans, spans, row, c);
  }
};
template <>
struct MarlinRaw<DType::Q4_K> : NibbleRaw<DType::Q4_K, 0> {
  __device__ static void scale_offsets(const uint8_t* tile, int, int row, int t,
                                       ScaleOffset (&out)[2]) {
    packed_scale_mins(tile + 2048, row, t, out);
  }
};

template <DType kType, int kZero>
struct FiveBitRaw : NibbleRaw<kType, kZero> {
  FifthBits<MarlinTile<kType>::kWide> high;
  __device__ __forceinline__ void load(const uint8_t* tile, int spans, int lane) {
    NibbleRaw<kType, kZero>::load(tile, spans, lane);
    high.template load<false>(tile + 512 * spans, spans, lane);
  }
  __device__ __forceinline__ void fragment(int c, uint32_t (&a)[2][4]) const {
#pragma unroll
    for (int s = 0; s < 2; ++s) {
      raw_pairs(this->word(c, s), a[s], high.of(c, s));
    }
  }
};
template <>
struct MarlinRaw<DType::Q5_0> : FiveBitRaw<DType::Q5_0, 16> {
  __device__ static ScaleOffset scale_offset(const uint8_t* tile, int spans, int row, int c, int) {
    return plain_scale(tile + 640 * spans, spans, row, c);
  }
};
template <>
struct MarlinRaw<DType::Q5_1> : FiveBitRaw<DType::Q5_1, 0> {
  __device__ static ScaleOffset scale_offset(const uint8_t* tile, int spans, int row, int c, int) {
    return plain_scale_offset(tile + 640 * spans, spans, row, c);
  }
};
template <>
struct MarlinRaw<DType::Q5_K> : FiveBitRaw<DType::Q5_K, 0> {
  __device__ static void scale_offsets(const uint8_t* tile, int, int row, int t,
                                       ScaleOffset (&out)[2]) {
    packed_scale_mins(tile + 2560, row, t, out);
  }
};

template <>
struct MarlinRaw<DType::Q6_K> : NibbleRaw<DType::Q6_K, 32> {
  static constexpr int kSets = 2;  // a scale per 16 columns
  uint4 high[2];
  __device__ __forceinline__ void load(const uint8_t* tile, int spans, int lane) {
    NibbleRaw<DType::Q6_K, 32>::load(tile, spans, lane);
    high[0] = load_as<uint4>(tile + 2048 + 16 * lane);
    high[1] = load_as<uint4>(tile + 2560 + 16 * lane);
  }
  __device__ __forceinline__ void fragment(int c, uint32_t (&a)[2][4]) const {
#pragma unroll
    for (int s = 0; s < 2; ++s) {
      raw_pairs(word(c, s), a[s], TwoHighBits{word_of(high[c / 4], c % 4), 8 * s});
    }
  }
  __device__ static ScaleOffset scale_offset(const uint8_t* tile, int, int row, int c, int h) {
    const float d = half_float(load_as<uint16_t>(tile + 3328 + 2 * row));
    const int8_t scale = load_as<int8_t>(tile + 3072 + row * 16 + h * 8 + c);
    return {d * (small_float(static_cast<uint8_t>(scale ^ 0x80)) - 128.0f), 0};
  }
};

// Bytes with a bias of 128 as halves: the tables, and Q8_0.
template <DType kType>
struct ByteRaw {
  static constexpr int kSets = 1;
  static constexpr float kOddFactor = 1;
  static constexpr float kEvenZero = 1024 + 128, kOddZero = 1024 + 128;
};
template <DType kType>
struct TableRaw : ByteRaw<kType> {
  uint4 codes[4];
  __device__ __forceinline__ void load(const uint8_t* tile, int, int lane) {
#pragma unroll
    for (int i = 0; i < 4; ++i) codes[i] = load_as<uint4>(tile + i * 512 + lane * 16);
  }
  __device__ __forceinline__ void fragment(int c, uint32_t (&a)[2][4]) const {
#pragma unroll
    for (int s = 0; s < 2; ++s) {
      raw_table_pairs(code_table<kType>(), word_of(codes[c / 2], 2 * (c % 2) + s), a[s]);
    }
  }
};
template <>
struct MarlinRaw<DType::IQ4_NL> : TableRaw<DType::IQ4_NL> {
  __device__ static ScaleOffset scale_offset(const uint8_t* tile, int spans, int row, int c, int) {
    return plain_scale(tile + 512 * spans, spans, row, c);
  }
};
template <>
struct MarlinRaw<DType::IQ4_XS> : TableRaw<DType::IQ4_XS> {
  __device__ static ScaleOffset scale_offset(const uint8_t* tile, int, int row, int c, int) {
    const uint2 h = load_as<uint2>(tile + 2048 + row * 8);
    const uint32_t bits = (h.y >> (4 * c) & 15) | (h.x >> (16 + 2 * c) & 3) << 4;
    return {half_float(h.x & 0xffff) * (small_float(bits) - 32.0f), 0};
  }
};
template <>
struct MarlinRaw<DType::MXFP4> : TableRaw<DType::MXFP4> {
  __device__ static ScaleOffset scale_offset(const uint8_t* tile, int spans, int row, int c, int) {
    const uint32_t e = load_as<uint8_t>(tile + 512 * spans + row * 2 * spans + c);
    return {__uint_as_float(e < 2 ? 0x00200000u << e : (e - 1) << 23), 0};
  }
};
template <>
struct MarlinRaw<DType::Q8_0> : ByteRaw<DType::Q8_0> {
  uint4 codes[8];
  __device__ __forceinline__ void load(const uint8_t* tile, int, int lane) {
#pragma unroll
    for (int c = 0; c < 8; ++c) codes[c] = load_as<uint4>(tile + c * 512 + lane * 16);
  }
  __device__ __forceinline__ void fragment(int c, uint32_t (&a)[2][4]) const {
#pragma unroll
    for (int s = 0; s < 2; ++s) {
#pragma unroll
      for (int w = 0; w < 2; ++w) {
        const uint32_t bytes = word_of(codes[c], 2 * s + w) ^ 0x80808080;
        a[s][2 * w] = __byte_perm(bytes, 0x64646464, 0x4140);
        a[s][2 * w + 1] = __byte_perm(bytes, 0x64646464, 0x4342);
      }
    }
  }
  __device__ static ScaleOffset scale_offset(const uint8_t* tile, int spans, int row, int c, int) {
    return plain_scale(tile + 1024 * spans, spans, row, c);
  }
};

}  // namespace ktx::kernels

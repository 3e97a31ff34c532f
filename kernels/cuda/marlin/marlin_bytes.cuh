// Tiles of the marlin layout for integer tensor cores, for the kernels of one token: codes as
// bytes, scales as floats, all in registers, so that a tile's shared memory is free once it is
// loaded.
//
//   MarlinBytes<DType::Q4_K> w;
//   w.load(tile, spans, lane);           // lane = 4g + t
//   w.fragment(c, a);                    // A of m16n8k32: columns 32c .. 32c + 31, all 16 rows
//   w.weigh(v, sums, x_scale, total);    // total += scales * v + offsets * sums
//
// Bytes stand in the order in which a word of codes has its nibbles: of the lane's columns
// 8t .. 8t + 3 first those at 0, 2, 1 and 3 (kByteOrder), then 8t + 4 .. likewise. A word's low
// nibbles are row g's, its high ones row g + 8's, and these stay where they are, so that a mask
// is all that four codes cost: kOddFactor is what such a byte is to be multiplied by.
//
// v, sums: of the lane's groups (below), the sums of code * x and of x, x being whole numbers.
// Formats with a scale per 32 columns: groups t and 4 + t, where group i has columns 32i on.
// Q6_K, with a scale per 16 (kHalves): groups t, 4 + t, 8 + t and 12 + t of 16 columns.
#pragma once

#include "kernels/cuda/marlin/marlin_tile.cuh"

namespace ktx::kernels {

template <DType kType>
struct MarlinBytes;

__device__ __forceinline__ float half_float(uint32_t bits) {
  return __half2float(__ushort_as_half(static_cast<unsigned short>(bits)));
}
// Byte `i` of a word as a float: 2^23 + byte is one.
__device__ __forceinline__ float byte_float(uint32_t word, int i) {
  return __uint_as_float(__byte_perm(word, 0x4b000000, 0x7440 + i)) - 8388608.0f;
}

// ---- Scales of rows g and g + 8 at groups t and 4 + t ----

// scale * code + offset, with what the codes of zero and of odd rows need worked in.
struct PlainScales {
  float scale[2][2], offset[2][2];  // [row][group]
  __device__ __forceinline__ void put(int r, int e, float d, float m, float factor, float zero) {
    scale[r][e] = d * factor;
    offset[r][e] = m - d * zero;
  }
  __device__ __forceinline__ void weigh(const float (&v)[2][2], const float (&sums)[2],
                                        float x_scale, float (&total)[2]) const {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float sum = scale[r][0] * v[0][r] + scale[r][1] * v[1][r];
      sum += offset[r][0] * sums[0] + offset[r][1] * sums[1];
      total[r] += sum * x_scale;
    }
  }
};

// The sixteen bytes of a row's header of Q4_K and Q5_K (marlin_scalar.cc): d, dmin, and six bits
// each for the scale and the minimum of eight groups.
struct ScaleMins {
  uint32_t of[2];  // of groups t and 4 + t: scales of rows g, g + 8, then their minima
  half2 d[2];      // (d, dmin) of the rows
  __device__ __forceinline__ void load(const uint8_t* plane, int g, int t) {
    const uint4 h0 = load_as<uint4>(plane + g * 16), h1 = load_as<uint4>(plane + (g + 8) * 16);
    d[0] = as_half2(h0.x), d[1] = as_half2(h1.x);
    const uint32_t own = static_cast<uint32_t>(t) * 0x11 + 0x40;  // byte t of both words
    const uint32_t low =
        __byte_perm(__byte_perm(h0.y, h1.y, own), __byte_perm(h0.z, h1.z, own), 0x5410);
    const uint32_t top = __byte_perm(h0.w, h1.w, own * 0x101);
    const uint32_t high = __byte_perm(top << 4, top, 0x7610);  // scales' bits four places up
    of[0] = and_or(high, 0x30303030, low & 0x0f0f0f0f);
    of[1] = and_or(high >> 2, 0x30303030, low >> 4 & 0x0f0f0f0f);
  }
  template <int kFactor>  // of odd rows, its inverse
  __device__ __forceinline__ void weigh(const float (&v)[2][2], const float (&sums)[2],
                                        float x_scale, float (&total)[2]) const {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const float scaled = byte_float(of[0], r) * v[0][r] + byte_float(of[1], r) * v[1][r];
      const float minima = byte_float(of[0], 2 + r) * sums[0] + byte_float(of[1], 2 + r) * sums[1];
      const float2 both = __half22float2(d[r]);
      const float factor = r ? x_scale / kFactor : x_scale;
      total[r] += scaled * (both.x * factor) - minima * (both.y * x_scale);
    }
  }
};

// ---- Codes ----

// Nibbles where they are.
struct NibbleBytes {
  static constexpr bool kHalves = false, kSigned = false;
  static constexpr float kOddFactor = 0.0625f;
  uint4 codes[4];
  __device__ __forceinline__ void load_codes(const uint8_t* tile, int, int lane) {
#pragma unroll
    for (int i = 0; i < 4; ++i) codes[i] = load_as<uint4>(tile + i * 512 + lane * 16);
  }
  __device__ __forceinline__ uint32_t word(int c, int s) const {
    return word_of(codes[c / 2], 2 * (c % 2) + s);
  }
  __device__ __forceinline__ void fragment(int c, uint32_t (&a)[4]) const {
#pragma unroll
    for (int s = 0; s < 2; ++s) {
      a[2 * s] = word(c, s) & 0x0f0f0f0f;
      a[2 * s + 1] = word(c, s) & 0xf0f0f0f0;
    }
  }
};

// A fifth bit above each nibble: bits p and 16 + p of four (`four`: those of a step lowest) are
// of the nibbles of pair p.
__device__ __forceinline__ void five_bits(uint32_t word, uint32_t four, uint32_t& even,
                                          uint32_t& odd) {
  even = and_or(four << 4, 0x00100010, word & 0x0f0f0f0f);
  even = and_or(four << 10, 0x10001000, even);
  odd = and_or(four << 3, 0x00100010, word >> 4 & 0x0f0f0f0f);
  odd = and_or(four << 9, 0x10001000, odd);
}
template <bool kWide>
struct FiveBitBytes : NibbleBytes {
  static constexpr float kOddFactor = 1;
  FifthBits<kWide> high;
  __device__ __forceinline__ void load_codes(const uint8_t* tile, int spans, int lane) {
    NibbleBytes::load_codes(tile, spans, lane);
    high.template load<false>(tile + 512 * spans, spans, lane);
  }
  __device__ __forceinline__ void fragment(int c, uint32_t (&a)[4]) const {
#pragma unroll
    for (int s = 0; s < 2; ++s) {
      const OneHighBit bits = high.of(c, s);
      five_bits(word(c, s), bits.word >> bits.first, a[2 * s], a[2 * s + 1]);
    }
  }
};

template <DType kType>
struct TableBytes : NibbleBytes {
  static constexpr bool kSigned = true;
  static constexpr float kOddFactor = 1;
  __device__ __forceinline__ void fragment(int c, uint32_t (&a)[4]) const {
    ByteTable table = code_table<kType>();
#pragma unroll
    for (uint32_t& v : table.words) v ^= 0x80808080;
#pragma unroll
    for (int s = 0; s < 2; ++s) {
      const uint32_t w = word(c, s);
      const uint32_t first = look_up4(table, w & 0xffff), second = look_up4(table, w >> 16);
      a[2 * s] = __byte_perm(first, second, 0x6420);
      a[2 * s + 1] = __byte_perm(first, second, 0x7531);
    }
  }
};

// ---- Formats ----

// Self::scale_offset(tile, spans, row, c): scale and offset of columns 32c on; kZero: the code of
// weight zero; kWide: blocks as wide as a tile.
struct ScaleOffset {
  float scale, offset;
};
template <class Codes, class Self>
struct PlainBytes : Codes {
  PlainScales scales;
  __device__ __forceinline__ void load(const uint8_t* tile, int spans, int lane) {
    this->load_codes(tile, spans, lane);
    load_scales(tile, spans, lane);
  }
  __device__ __forceinline__ void load_scales(const uint8_t* tile, int spans, int lane) {
    const int g = lane / 4, t = lane % 4;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const int c = 4 * e + t;
        const bool there = Self::kWide || c < 2 * spans;
        const ScaleOffset s =
            there ? Self::scale_offset(tile, spans, g + 8 * r, c) : ScaleOffset{0, 0};
        scales.put(r, e, s.scale, s.offset, r ? Codes::kOddFactor : 1, Self::kZero);
      }
    }
  }
  __device__ __forceinline__ void weigh(const float (&v)[2][2], const float (&sums)[2],
                                        float x_scale, float (&total)[2]) const {
    scales.weigh(v, sums, x_scale, total);
  }
};
__device__ __forceinline__ ScaleOffset plain_scale(const uint8_t* plane, int spans, int row,
                                                   int c) {
  return {half_float(load_as<uint16_t>(plane + row * 4 * spans + 2 * c)), 0};
}
__device__ __forceinline__ ScaleOffset plain_scale_offset(const uint8_t* plane, int spans, int row,
                                                          int c) {
  const float2 v = __half22float2(load_as<half2>(plane + row * 8 * spans + 4 * c));
  return {v.x, v.y};
}

template <>
struct MarlinBytes<DType::Q4_0> : PlainBytes<NibbleBytes, MarlinBytes<DType::Q4_0>> {
  static constexpr bool kWide = false;
  static constexpr float kZero = 8;
  __device__ static ScaleOffset scale_offset(const uint8_t* tile, int spans, int row, int c) {
    return plain_scale(tile + 512 * spans, spans, row, c);
  }
};
template <>
struct MarlinBytes<DType::Q4_1> : PlainBytes<NibbleBytes, MarlinBytes<DType::Q4_1>> {
  static constexpr bool kWide = false;
  static constexpr float kZero = 0;
  __device__ static ScaleOffset scale_offset(const uint8_t* tile, int spans, int row, int c) {
    return plain_scale_offset(tile + 512 * spans, spans, row, c);
  }
};
template <>
struct MarlinBytes<DType::Q5_0> : PlainBytes<FiveBitBytes<false>, MarlinBytes<DType::Q5_0>> {
  static constexpr bool kWide = false;
  static constexpr float kZero = 16;
  __device__ static ScaleOffset scale_offset(const uint8_t* tile, int spans, int row, int c) {
    return plain_scale(tile + 640 * spans, spans, row, c);
  }
};
template <>
struct MarlinBytes<DType::Q5_1> : PlainBytes<FiveBitBytes<false>, MarlinBytes<DType::Q5_1>> {
  static constexpr bool kWide = false;
  static constexpr float kZero = 0;
  __device__ static ScaleOffset scale_offset(const uint8_t* tile, int spans, int row, int c) {
    return plain_scale_offset(tile + 640 * spans, spans, row, c);
  }
};
template <>
struct MarlinBytes<DType::IQ4_NL>
    : PlainBytes<TableBytes<DType::IQ4_NL>, MarlinBytes<DType::IQ4_NL>> {
  static constexpr bool kWide = false;
  static constexpr float kZero = 0;
  __device__ static ScaleOffset scale_offset(const uint8_t* tile, int spans, int row, int c) {
    return plain_scale(tile + 512 * spans, spans, row, c);
  }
};
template <>
struct MarlinBytes<DType::MXFP4> : PlainBytes<TableBytes<DType::MXFP4>, MarlinBytes<DType::MXFP4>> {
  static constexpr bool kWide = false;
  static constexpr float kZero = 0;
  __device__ static ScaleOffset scale_offset(const uint8_t* tile, int spans, int row, int c) {
    const uint32_t e = load_as<uint8_t>(tile + 512 * spans + row * 2 * spans + c);
    return {__uint_as_float(e < 2 ? 0x00200000u << e : (e - 1) << 23), 0};
  }
};
template <>
struct MarlinBytes<DType::IQ4_XS>
    : PlainBytes<TableBytes<DType::IQ4_XS>, MarlinBytes<DType::IQ4_XS>> {
  static constexpr bool kWide = true;
  static constexpr float kZero = 0;
  __device__ static ScaleOffset scale_offset(const uint8_t* tile, int, int row, int c) {
    const uint2 h = load_as<uint2>(tile + 2048 + row * 8);
    const uint32_t bits = (h.y >> (4 * c) & 15) | (h.x >> (16 + 2 * c) & 3) << 4;
    return {half_float(h.x & 0xffff) * (byte_float(bits, 0) - 32.0f), 0};
  }
};

// Bytes of a row stand two and two in a word with those of the row eight on.
struct WholeBytes {
  static constexpr bool kHalves = false, kSigned = true;
  static constexpr float kOddFactor = 1;
  uint4 codes[8];
  __device__ __forceinline__ void load_codes(const uint8_t* tile, int, int lane) {
#pragma unroll
    for (int c = 0; c < 8; ++c) codes[c] = load_as<uint4>(tile + c * 512 + lane * 16);
  }
  __device__ __forceinline__ void fragment(int c, uint32_t (&a)[4]) const {
#pragma unroll
    for (int s = 0; s < 2; ++s) {
      const uint32_t w0 = word_of(codes[c], 2 * s), w1 = word_of(codes[c], 2 * s + 1);
      a[2 * s] = __byte_perm(w0, w1, 0x5140);
      a[2 * s + 1] = __byte_perm(w0, w1, 0x7362);
    }
  }
};
template <>
struct MarlinBytes<DType::Q8_0> : PlainBytes<WholeBytes, MarlinBytes<DType::Q8_0>> {
  static constexpr bool kWide = false;
  static constexpr float kZero = 0;
  __device__ static ScaleOffset scale_offset(const uint8_t* tile, int spans, int row, int c) {
    return plain_scale(tile + 1024 * spans, spans, row, c);
  }
};

template <class Codes, int kFactor>
struct ScaleMinBytes : Codes {
  ScaleMins scales;
  __device__ __forceinline__ void weigh(const float (&v)[2][2], const float (&sums)[2],
                                        float x_scale, float (&total)[2]) const {
    scales.weigh<kFactor>(v, sums, x_scale, total);
  }
};
template <>
struct MarlinBytes<DType::Q4_K> : ScaleMinBytes<NibbleBytes, 16> {
  __device__ __forceinline__ void load(const uint8_t* tile, int, int lane) {
    load_codes(tile, 4, lane);
    scales.load(tile + 2048, lane / 4, lane % 4);
  }
};
template <>
struct MarlinBytes<DType::Q5_K> : ScaleMinBytes<FiveBitBytes<true>, 1> {
  __device__ __forceinline__ void load(const uint8_t* tile, int, int lane) {
    load_codes(tile, 4, lane);
    scales.load(tile + 2560, lane / 4, lane % 4);
  }
};

template <>
struct MarlinBytes<DType::Q6_K> : NibbleBytes {
  static constexpr bool kHalves = true;
  static constexpr float kOddFactor = 1;
  uint4 high[2];
  uint32_t scales[2];  // a signed byte a group
  half2 d;
  __device__ __forceinline__ void load(const uint8_t* tile, int, int lane) {
    const int g = lane / 4, t = lane % 4;
    load_codes(tile, 4, lane);
    high[0] = load_as<uint4>(tile + 2048 + 16 * lane);
    high[1] = load_as<uint4>(tile + 2560 + 16 * lane);
    // A row's bytes: those of the first halves of the chunks of 32, then those of the second.
    // Groups 4i + t are chunk 2i + t / 2's, half t % 2.
    const uint32_t own = static_cast<uint32_t>(t / 2) * 0x1111 + 0x6420;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const uint2 eight = load_as<uint2>(tile + 3072 + (g + 8 * r) * 16 + t % 2 * 8);
      scales[r] = __byte_perm(eight.x, eight.y, own) ^ 0x80808080;
    }
    d = __halves2half2(load_as<half>(tile + 3328 + 2 * g), load_as<half>(tile + 3344 + 2 * g));
  }
  // Bits 8s + 2p of a word and 16 above have what is over the nibbles of pair p, step s.
  __device__ __forceinline__ void fragment(int c, uint32_t (&a)[4]) const {
#pragma unroll
    for (int s = 0; s < 2; ++s) {
      const uint32_t w = word(c, s);
      const uint32_t two = __byte_perm(word_of(high[c / 4], c % 4), 0, s ? 0x3311 : 0x2200);
      a[2 * s] = and_or(two, 0x30003000, w & 0x0f0f0f0f);
      a[2 * s] = and_or(two << 4, 0x00300030, a[2 * s]);
      a[2 * s + 1] = and_or(two >> 2, 0x30003000, w >> 4 & 0x0f0f0f0f);
      a[2 * s + 1] = and_or(two << 2, 0x00300030, a[2 * s + 1]);
    }
  }
  __device__ __forceinline__ void weigh(const float (&v)[4][2], const float (&sums)[4],
                                        float x_scale, float (&total)[2]) const {
    const float2 both = __half22float2(d);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float sum = 0;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        sum += (byte_float(scales[r], i) - 128.0f) * (v[i][r] - 32.0f * sums[i]);
      }
      total[r] += sum * ((r ? both.y : both.x) * x_scale);
    }
  }
};

}  // namespace ktx::kernels

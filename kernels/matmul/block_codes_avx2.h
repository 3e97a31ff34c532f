// One block of a quantised format to int8 codes in AVX2 registers, and its scales
// and mins; all formats but IQ2, IQ3, IQ1 (block_codes_iq_avx2.h). For _avx2.cc and
// _avx512.cc files only: a product can take the codes without storing them.
//
//   float scales[8], mins[8];
//   block_scales(block, scales, mins);            // BlockQ4_K: 8 groups of 32
//   block_codes(block, [&](int part, __m256i c) {   // part 0..7, in order:
//     ...                                         // c holds the codes of weights
//   });                                           // 32 * part on
//
// The equations and the meaning of the bits: lib/formats/blocks.h and int8_form.h.
// mins are untouched where the format has none. Everything here has internal
// linkage: were it shared, the linker might keep the AVX-512 copy for all callers.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

#include "kernels/simd/avx2.h"
#include "lib/formats/blocks.h"

#define KTX_ALWAYS_INLINE __attribute__((always_inline))

namespace ktx::kernels {
namespace {  // see above

inline __m256i load256(const void* bytes) {
  return _mm256_loadu_si256(static_cast<const __m256i*>(bytes));
}
inline __m128i load128(const void* bytes) {
  return _mm_loadu_si128(static_cast<const __m128i*>(bytes));
}
inline uint32_t load32(const void* bytes) {
  uint32_t word;
  std::memcpy(&word, bytes, sizeof(word));
  return word;
}
inline uint64_t load64(const void* bytes) {
  uint64_t word;
  std::memcpy(&word, bytes, sizeof(word));
  return word;
}

inline __m256i low_nibbles(__m256i bytes) {
  return _mm256_and_si256(bytes, _mm256_set1_epi8(15));
}
inline __m256i high_nibbles(__m256i bytes) {
  return low_nibbles(_mm256_srli_epi16(bytes, 4));
}

// 16 bytes as 32 nibbles: the low ones, then the high ones.
inline __m256i split_nibbles(const uint8_t* codes) {
  const __m128i bytes = load128(codes);
  return low_nibbles(_mm256_set_m128i(_mm_srli_epi16(bytes, 4), bytes));
}

// Two bits of each byte, from bit `shift`.
inline __m256i two_bits(__m256i bytes, int shift) {
  return _mm256_and_si256(_mm256_srli_epi16(bytes, shift), _mm256_set1_epi8(3));
}

// 0xff in byte i where bit i is set.
inline __m256i mask_of_bits(uint32_t bits) {
#ifdef __AVX512BW__
  return _mm256_movm_epi8(bits);
#else
  const __m256i byte_of =
      _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303);
  const __m256i bit_of = _mm256_set1_epi64x(static_cast<int64_t>(0x8040201008040201));
  const __m256i spread = _mm256_shuffle_epi8(_mm256_set1_epi32(static_cast<int>(bits)), byte_of);
  return _mm256_cmpeq_epi8(_mm256_and_si256(spread, bit_of), bit_of);
#endif
}

// 0xff in each byte that has bit `bit` set.
inline __m256i mask_of_bit(__m256i bytes, int bit) {
  const __m256i one = _mm256_set1_epi8(static_cast<char>(1 << bit));
  return _mm256_cmpeq_epi8(_mm256_and_si256(bytes, one), one);
}

// 16 codes looked up in `values`, per nibble.
inline __m256i look_up(const int8_t (&values)[16], __m256i nibbles) {
  return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(load128(values)), nibbles);
}

// Eight (sixteen) floats: `scale` times the bytes of `steps`.
inline void put8(float scale, __m256i steps, float* out) {
  _mm256_storeu_ps(out, _mm256_mul_ps(_mm256_set1_ps(scale), _mm256_cvtepi32_ps(steps)));
}
inline void put16_unsigned(float scale, __m128i steps, float* out) {
  put8(scale, _mm256_cvtepu8_epi32(steps), out);
  put8(scale, _mm256_cvtepu8_epi32(_mm_srli_si128(steps, 8)), out + 8);
}
inline void put16_signed(float scale, __m128i steps, float* out) {
  put8(scale, _mm256_cvtepi8_epi32(steps), out);
  put8(scale, _mm256_cvtepi8_epi32(_mm_srli_si128(steps, 8)), out + 8);
}

// ---- formats of 32 weights with one scale

inline void block_scales(const BlockQ4_0& in, float* scales, float*) {
  *scales = _cvtsh_ss(in.scale);
}
template <class Put>
inline void block_codes(const BlockQ4_0& in, Put put) {
  put(0, _mm256_sub_epi8(split_nibbles(in.codes), _mm256_set1_epi8(8)));
}

inline void block_scales(const BlockQ4_1& in, float* scales, float* mins) {
  *scales = _cvtsh_ss(in.scale);
  *mins = -_cvtsh_ss(in.offset);
}
template <class Put>
inline void block_codes(const BlockQ4_1& in, Put put) {
  put(0, split_nibbles(in.codes));
}

inline void block_scales(const BlockQ5_0& in, float* scales, float*) {
  *scales = _cvtsh_ss(in.scale);
}
template <class Put>
inline void block_codes(const BlockQ5_0& in, Put put) {
  // nibble + 16 * bit - 16: without the bit, the sign bits 0xf0 come in instead.
  const __m256i mask = mask_of_bits(load32(in.high));
  const __m256i sign = _mm256_andnot_si256(mask, _mm256_set1_epi8(static_cast<char>(0xf0)));
  put(0, _mm256_or_si256(split_nibbles(in.codes), sign));
}

inline void block_scales(const BlockQ5_1& in, float* scales, float* mins) {
  *scales = _cvtsh_ss(in.scale);
  *mins = -_cvtsh_ss(in.offset);
}
template <class Put>
inline void block_codes(const BlockQ5_1& in, Put put) {
  const __m256i bit = _mm256_and_si256(mask_of_bits(load32(in.high)), _mm256_set1_epi8(16));
  put(0, _mm256_or_si256(split_nibbles(in.codes), bit));
}

inline void block_scales(const BlockQ8_0& in, float* scales, float*) {
  *scales = _cvtsh_ss(in.scale);
}
template <class Put>
inline void block_codes(const BlockQ8_0& in, Put put) {
  put(0, load256(in.codes));
}

inline void block_scales(const BlockMXFP4& in, float* scales, float*) {
  const uint32_t small = 0x00200000u << (in.exponent & 1);  // 2^-128, 2^-127: subnormal
  *scales = std::bit_cast<float>(in.exponent < 2 ? small : (in.exponent - 1u) << 23);
}
template <class Put>
inline void block_codes(const BlockMXFP4& in, Put put) {
  put(0, look_up(kMxfp4Doubled, split_nibbles(in.codes)));
}

inline void block_scales(const BlockIQ4_NL& in, float* scales, float*) {
  *scales = _cvtsh_ss(in.scale);
}
template <class Put>
inline void block_codes(const BlockIQ4_NL& in, Put put) {
  put(0, look_up(kIq4Values, split_nibbles(in.codes)));
}

// ---- formats of 64 and 128 weights

inline void block_scales(const BlockNVFP4& in, float* scales, float*) {
  const __m128i bytes = _mm_cvtepu8_epi16(_mm_cvtsi32_si128(static_cast<int>(load32(in.scales))));
  const __m128i zeros = _mm_cmpeq_epi16(bytes, _mm_set1_epi16(0x7f));
  // Exponent and mantissa where a half has them: 2^-8 of the number, whose half is wanted.
  const __m128i halves = _mm_slli_epi16(_mm_and_si128(bytes, _mm_set1_epi16(0x7f)), 7);
  const __m128 small = _mm_cvtph_ps(_mm_andnot_si128(zeros, halves));
  _mm_storeu_ps(scales, _mm_mul_ps(small, _mm_set1_ps(128)));
}
template <class Put>
inline void block_codes(const BlockNVFP4& in, Put put) {
  for (int part = 0; part < 2; ++part) {
    const __m256i nibbles = split_nibbles(in.codes + 16 * part);
    // The low and the high nibbles of eight bytes, then those of the next eight.
    put(part, look_up(kMxfp4Doubled, _mm256_permute4x64_epi64(nibbles, 0xD8)));
  }
}

inline void block_scales(const BlockQ1_0& in, float* scales, float*) {
  _mm_storeu_ps(scales, _mm_set1_ps(_cvtsh_ss(in.scale)));
}
template <class Put>
inline void block_codes(const BlockQ1_0& in, Put put) {
  for (int part = 0; part < 4; ++part) {
    const __m256i mask = mask_of_bits(load32(in.codes + 4 * part));
    put(part, _mm256_sub_epi8(_mm256_and_si256(mask, _mm256_set1_epi8(2)), _mm256_set1_epi8(1)));
  }
}

inline void block_scales(const BlockQ2_0& in, float* scales, float*) {
  scales[0] = scales[1] = _cvtsh_ss(in.scale);
}
template <class Put>
inline void block_codes(const BlockQ2_0& in, Put put) {
  for (int part = 0; part < 2; ++part) {
    const auto eight = static_cast<long long>(load64(in.codes + 8 * part));
    const __m256i words = _mm256_cvtepu8_epi32(_mm_cvtsi64_si128(eight));
    // Two bits of the byte in each byte of its word.
    const __m256i pairs = _mm256_or_si256(words, _mm256_slli_epi32(words, 6));
    const __m256i all = _mm256_or_si256(pairs, _mm256_slli_epi32(pairs, 12));
    put(part, _mm256_sub_epi8(two_bits(all, 0), _mm256_set1_epi8(1)));
  }
}

// ---- K formats

inline void block_scales(const BlockQ2_K& in, float* scales, float* mins) {
  const __m128i bytes = load128(in.scales);
  const __m128i low = _mm_set1_epi8(15);
  put16_unsigned(_cvtsh_ss(in.scale), _mm_and_si128(bytes, low), scales);
  put16_unsigned(_cvtsh_ss(in.min), _mm_and_si128(_mm_srli_epi16(bytes, 4), low), mins);
}
template <class Put>
inline void block_codes(const BlockQ2_K& in, Put put) {
  for (int half = 0; half < 2; ++half) {
    const __m256i bytes = load256(in.codes + 32 * half);
    put(4 * half, two_bits(bytes, 0));
    put(4 * half + 1, two_bits(bytes, 2));
    put(4 * half + 2, two_bits(bytes, 4));
    put(4 * half + 3, two_bits(bytes, 6));
  }
}

inline void block_scales(const BlockQ3_K& in, float* scales, float*) {
  const auto low = static_cast<int64_t>(load64(in.scales));
  const auto high = static_cast<int>(load32(in.scales + 8));
  const __m128i nibbles = _mm_and_si128(_mm_set_epi64x(low >> 4, low), _mm_set1_epi8(15));
  const __m128i shifted = _mm_srlv_epi32(_mm_set1_epi32(high), _mm_setr_epi32(0, 2, 4, 6));
  const __m128i top = _mm_slli_epi16(_mm_and_si128(shifted, _mm_set1_epi8(3)), 4);
  const __m128i steps = _mm_sub_epi8(_mm_or_si128(nibbles, top), _mm_set1_epi8(32));
  put16_signed(_cvtsh_ss(in.scale), steps, scales);
}
template <class Put>
inline void block_codes(const BlockQ3_K& in, Put put) {
  const __m256i high = load256(in.high);
  const __m256i minus_four = _mm256_set1_epi8(-4);
  for (int part = 0; part < 8; ++part) {
    const __m256i low = two_bits(load256(in.codes + part / 4 * 32), part % 4 * 2);
    put(part, _mm256_or_si256(low, _mm256_andnot_si256(mask_of_bit(high, part), minus_four)));
  }
}

// The 12 bytes that Q4_K and Q5_K share: eight scales and eight mins of six bits.
inline void put_six_bit(const uint8_t (&bytes)[12], uint16_t scale, uint16_t min, float* scales,
                        float* mins) {
  const uint32_t first = load32(bytes), second = load32(bytes + 4), third = load32(bytes + 8);
  const uint64_t scales_high = (third & 0x0f0f0f0f) | (first >> 2 & 0x30303030);
  const uint64_t mins_high = (third >> 4 & 0x0f0f0f0f) | (second >> 2 & 0x30303030);
  const uint64_t scale_steps = scales_high << 32 | (first & 0x3f3f3f3f);
  const uint64_t min_steps = mins_high << 32 | (second & 0x3f3f3f3f);
  put8(_cvtsh_ss(scale),
       _mm256_cvtepu8_epi32(_mm_cvtsi64_si128(std::bit_cast<int64_t>(scale_steps))), scales);
  put8(_cvtsh_ss(min), _mm256_cvtepu8_epi32(_mm_cvtsi64_si128(std::bit_cast<int64_t>(min_steps))),
       mins);
}

inline void block_scales(const BlockQ4_K& in, float* scales, float* mins) {
  put_six_bit(in.scales, in.scale, in.min, scales, mins);
}
template <class Put>
inline void block_codes(const BlockQ4_K& in, Put put) {
  for (int pair = 0; pair < 4; ++pair) {
    const __m256i bytes = load256(in.codes + 32 * pair);
    put(2 * pair, low_nibbles(bytes));
    put(2 * pair + 1, high_nibbles(bytes));
  }
}

inline void block_scales(const BlockQ5_K& in, float* scales, float* mins) {
  put_six_bit(in.scales, in.scale, in.min, scales, mins);
}
template <class Put>
inline void block_codes(const BlockQ5_K& in, Put put) {
  const __m256i high = load256(in.high);
  const __m256i sixteen = _mm256_set1_epi8(16);
  for (int pair = 0; pair < 4; ++pair) {
    const __m256i bytes = load256(in.codes + 32 * pair);
    const __m256i even = _mm256_and_si256(mask_of_bit(high, 2 * pair), sixteen);
    const __m256i odd = _mm256_and_si256(mask_of_bit(high, 2 * pair + 1), sixteen);
    put(2 * pair, _mm256_or_si256(low_nibbles(bytes), even));
    put(2 * pair + 1, _mm256_or_si256(high_nibbles(bytes), odd));
  }
}

inline void block_scales(const BlockQ6_K& in, float* scales, float*) {
  put16_signed(_cvtsh_ss(in.scale), load128(in.scales), scales);
}
template <class Put>
inline void block_codes(const BlockQ6_K& in, Put put) {
  const auto join = [](__m256i nibbles, __m256i top) KTX_ALWAYS_INLINE {
    return _mm256_sub_epi8(_mm256_or_si256(nibbles, _mm256_slli_epi16(top, 4)),
                           _mm256_set1_epi8(32));
  };
  for (int half = 0; half < 2; ++half) {
    const __m256i first = load256(in.low + 64 * half);
    const __m256i second = load256(in.low + 64 * half + 32);
    const __m256i high = load256(in.high + 32 * half);
    put(4 * half, join(low_nibbles(first), two_bits(high, 0)));
    put(4 * half + 1, join(low_nibbles(second), two_bits(high, 2)));
    put(4 * half + 2, join(high_nibbles(first), two_bits(high, 4)));
    put(4 * half + 3, join(high_nibbles(second), two_bits(high, 6)));
  }
}

inline void block_scales(const BlockIQ4_XS& in, float* scales, float*) {
  const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  const __m256i low = _mm256_srlv_epi32(_mm256_set1_epi32(static_cast<int>(load32(in.scales_low))),
                                        _mm256_slli_epi32(lane, 2));
  const __m256i high =
      _mm256_srlv_epi32(_mm256_set1_epi32(in.scales_high), _mm256_slli_epi32(lane, 1));
  const __m256i steps =
      _mm256_or_si256(_mm256_and_si256(low, _mm256_set1_epi32(15)),
                      _mm256_slli_epi32(_mm256_and_si256(high, _mm256_set1_epi32(3)), 4));
  put8(_cvtsh_ss(in.scale), _mm256_sub_epi32(steps, _mm256_set1_epi32(32)), scales);
}
template <class Put>
inline void block_codes(const BlockIQ4_XS& in, Put put) {
  for (int part = 0; part < 8; ++part) {
    put(part, look_up(kIq4Values, split_nibbles(in.codes + 16 * part)));
  }
}

// ---- ternary formats: one scale, repeated for the eight groups of 32

inline void block_scales(const BlockTQ2_0& in, float* scales, float*) {
  _mm256_storeu_ps(scales, _mm256_set1_ps(_cvtsh_ss(in.scale)));
}
template <class Put>
inline void block_codes(const BlockTQ2_0& in, Put put) {
  for (int part = 0; part < 8; ++part) {
    const __m256i codes = two_bits(load256(in.codes + part / 4 * 32), part % 4 * 2);
    put(part, _mm256_sub_epi8(codes, _mm256_set1_epi8(1)));
  }
}

// The first trit of each byte less one: 3 * byte / 256 is 1 from 86 on, 2 from 171.
inline __m256i first_trits(__m256i bytes) {
  const auto at_least = [bytes](int limit) KTX_ALWAYS_INLINE {
    const __m256i limits = _mm256_set1_epi8(static_cast<char>(limit));
    return _mm256_cmpeq_epi8(_mm256_max_epu8(bytes, limits), bytes);  // -1 where true
  };
  return _mm256_sub_epi8(_mm256_sub_epi8(_mm256_set1_epi8(-1), at_least(86)), at_least(171));
}
// Brings the next trit of each byte to the front.
inline __m256i next_trits(__m256i bytes) {
  return _mm256_add_epi8(bytes, _mm256_add_epi8(bytes, bytes));
}

inline void block_scales(const BlockTQ1_0& in, float* scales, float*) {
  _mm256_storeu_ps(scales, _mm256_set1_ps(_cvtsh_ss(in.scale)));
}
template <class Put>
inline void block_codes(const BlockTQ1_0& in, Put put) {
  __m256i bytes = load256(in.codes);
  for (int part = 0; part < 5; ++part, bytes = next_trits(bytes)) put(part, first_trits(bytes));
  // 16 bytes give parts 5, 6 and the first half of 7; four bytes the rest.
  const __m256i first = _mm256_castsi128_si256(load128(in.codes + 32));
  const __m256i second = next_trits(first);
  const __m256i third = next_trits(second);
  const __m256i fourth = next_trits(third);
  const __m256i fifth = next_trits(fourth);
  put(5, first_trits(_mm256_permute2x128_si256(first, second, 0x20)));
  put(6, first_trits(_mm256_permute2x128_si256(third, fourth, 0x20)));
  const __m256i words = _mm256_cvtepu8_epi16(_mm_set1_epi32(static_cast<int>(load32(in.high))));
  const __m256i powers = _mm256_setr_epi16(1, 1, 1, 1, 3, 3, 3, 3, 9, 9, 9, 9, 27, 27, 27, 27);
  const __m256i shifted =
      _mm256_and_si256(_mm256_mullo_epi16(words, powers), _mm256_set1_epi16(255));
  const __m128i last =
      _mm_packus_epi16(_mm256_castsi256_si128(shifted), _mm256_extracti128_si256(shifted, 1));
  put(7, first_trits(_mm256_set_m128i(last, _mm256_castsi256_si128(fifth))));
}

}  // namespace
}  // namespace ktx::kernels

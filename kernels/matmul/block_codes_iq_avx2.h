// block_scales and block_codes of IQ2, IQ3 and IQ1; see block_codes_avx2.h for
// what they mean and lib/formats/blocks.h for the layouts.
//
// The grid look-ups are plain loads joined in a register: a gather decodes IQ3_XXS
// a third slower on Zen 3 (6.8 instead of 10 G codes/s). Those of IQ3_S are put
// together 16 at a time; signs go from bits to bytes for 32 weights at once.
#pragma once

#include "kernels/matmul/block_codes_avx2.h"
#include "lib/formats/iq_tables.h"

namespace ktx::kernels {
namespace {  // see block_codes_avx2.h

// Negates the codes whose bit is set.
inline __m256i apply_signs(__m256i codes, uint32_t bits) {
#ifdef __AVX512BW__
  return _mm256_mask_sub_epi8(codes, bits, _mm256_setzero_si256(), codes);
#else
  const __m256i mask = mask_of_bits(bits);
  return _mm256_sub_epi8(_mm256_xor_si256(codes, mask), mask);
#endif
}

// Seven sign bits per byte and the eighth that makes them even; see even_signs.
inline __m256i with_eighth_sign(__m256i seven) {
  constexpr char kOdd = static_cast<char>(0x80);
  const __m256i parity = _mm256_broadcastsi128_si256(
      _mm_setr_epi8(0, kOdd, kOdd, 0, kOdd, 0, 0, kOdd, kOdd, 0, 0, kOdd, 0, kOdd, kOdd, 0));
  const __m256i eighth = _mm256_xor_si256(_mm256_shuffle_epi8(parity, low_nibbles(seven)),
                                          _mm256_shuffle_epi8(parity, high_nibbles(seven)));
  return _mm256_or_si256(seven, eighth);
}

// Sign bits of a block: those of weights 32 * k on from the lower 28 bits of word k.
inline void store_signs(__m256i words, uint32_t (&signs)[8]) {
  const auto field = [words](int shift, int mask) KTX_ALWAYS_INLINE {
    return _mm256_and_si256(_mm256_slli_epi32(words, shift), _mm256_set1_epi32(mask));
  };
  const __m256i seven = _mm256_or_si256(_mm256_or_si256(field(0, 0x7f), field(1, 0x7f00)),
                                        _mm256_or_si256(field(2, 0x7f0000), field(3, 0x7f000000)));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(signs), with_eighth_sign(seven));
}

inline int64_t grid8(const uint64_t* grid, uint32_t index) {
  return static_cast<int64_t>(grid[index]);
}
inline int grid4(const uint32_t* grid, uint32_t index) {
  return static_cast<int>(grid[index]);
}

// scale * (0.5 + step) * `factor`, rounded in this order.
inline void put8_half_steps(float scale, __m256i steps, float factor, float* out) {
  const __m256 sums = _mm256_add_ps(_mm256_set1_ps(0.5f), _mm256_cvtepi32_ps(steps));
  const __m256 product = _mm256_mul_ps(_mm256_set1_ps(scale), sums);
  _mm256_storeu_ps(out, _mm256_mul_ps(product, _mm256_set1_ps(factor)));
}

// scale * (2 * step + 1) * `factor`, a power of two: exact in any order.
inline void put8_odd_steps(float scale, __m256i steps, float factor, float* out) {
  const __m256i odd = _mm256_add_epi32(_mm256_add_epi32(steps, steps), _mm256_set1_epi32(1));
  put8(scale * factor, odd, out);
}

// Eight bytes as 16 nibbles, each byte's low one first.
inline __m128i nibbles_in_order(const uint8_t* bytes) {
  const __m128i both = _mm_cvtsi64_si128(static_cast<int64_t>(load64(bytes)));
  const __m128i low = _mm_and_si128(both, _mm_set1_epi8(15));
  const __m128i high = _mm_and_si128(_mm_srli_epi16(both, 4), _mm_set1_epi8(15));
  return _mm_unpacklo_epi8(low, high);
}

inline void put16_quarter_scales(uint16_t scale, const uint8_t* nibbles, float* scales) {
  const __m128i steps = nibbles_in_order(nibbles);
  put8_half_steps(_cvtsh_ss(scale), _mm256_cvtepu8_epi32(steps), 0.25f, scales);
  put8_half_steps(_cvtsh_ss(scale), _mm256_cvtepu8_epi32(_mm_srli_si128(steps, 8)), 0.25f,
                  scales + 8);
}

// ---- IQ2

// The second of the two words of each group: signs and, in the top four bits, scale.
inline __m256i second_words(const BlockIQ2_XXS& in) {
  const __m256 first = _mm256_castsi256_ps(load256(in.codes));
  const __m256 second = _mm256_castsi256_ps(load256(in.codes + 16));
  const __m256i odd = _mm256_castps_si256(_mm256_shuffle_ps(first, second, 0xdd));
  return _mm256_permute4x64_epi64(odd, 0xd8);
}

inline void block_scales(const BlockIQ2_XXS& in, float* scales, float*) {
  put8_half_steps(_cvtsh_ss(in.scale), _mm256_srli_epi32(second_words(in), 28), 0.25f, scales);
}
template <class Put>
inline void block_codes(const BlockIQ2_XXS& in, Put put) {
  const uint64_t* grid = kIq2XxsGrid.data();
  uint32_t signs[8];
  store_signs(second_words(in), signs);
  for (int part = 0; part < 8; ++part) {
    const uint32_t word = load32(in.codes + 4 * part);
    const __m256i codes =
        _mm256_setr_epi64x(grid8(grid, word & 255), grid8(grid, word >> 8 & 255),
                           grid8(grid, word >> 16 & 255), grid8(grid, word >> 24));
    put(part, apply_signs(codes, signs[part]));
  }
}

inline void block_scales(const BlockIQ2_XS& in, float* scales, float*) {
  put16_quarter_scales(in.scale, in.scales, scales);
}
template <class Put>
inline void block_codes(const BlockIQ2_XS& in, Put put) {
  const uint64_t* grid = kIq2XsGrid.data();
  uint32_t signs[8];
  const __m256i packed = _mm256_packus_epi16(_mm256_srli_epi16(load256(in.codes), 9),
                                             _mm256_srli_epi16(load256(in.codes + 16), 9));
  const __m256i seven = _mm256_permute4x64_epi64(packed, 0xd8);  // undo the lanes of packus
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(signs), with_eighth_sign(seven));
  for (int part = 0; part < 8; ++part) {
    const uint64_t word = load64(in.codes + 4 * part);
    const __m256i codes =
        _mm256_setr_epi64x(grid8(grid, word & 511), grid8(grid, word >> 16 & 511),
                           grid8(grid, word >> 32 & 511), grid8(grid, word >> 48 & 511));
    put(part, apply_signs(codes, signs[part]));
  }
}

inline void block_scales(const BlockIQ2_S& in, float* scales, float*) {
  put16_quarter_scales(in.scale, in.scales, scales);
}
template <class Put>
inline void block_codes(const BlockIQ2_S& in, Put put) {
  const uint64_t* grid = kIq2SGrid.data();
  for (int part = 0; part < 8; ++part) {
    const uint8_t* index = in.index + 4 * part;
    const uint32_t high = in.high[part];
    const __m256i codes = _mm256_setr_epi64x(
        grid8(grid, index[0] | (high << 8 & 0x300)), grid8(grid, index[1] | (high << 6 & 0x300)),
        grid8(grid, index[2] | (high << 4 & 0x300)), grid8(grid, index[3] | (high << 2 & 0x300)));
    put(part, apply_signs(codes, load32(in.signs + 4 * part)));
  }
}

// ---- IQ3

inline void block_scales(const BlockIQ3_XXS& in, float* scales, float*) {
  const __m256i steps = _mm256_srli_epi32(load256(in.signs_and_scales), 28);
  put8_half_steps(_cvtsh_ss(in.scale), steps, 0.5f, scales);
}
template <class Put>
inline void block_codes(const BlockIQ3_XXS& in, Put put) {
  const uint32_t* grid = kIq3XxsGrid.data();
  uint32_t signs[8];
  store_signs(load256(in.signs_and_scales), signs);
  for (int part = 0; part < 8; ++part) {
    const uint8_t* index = in.index + 8 * part;
    const __m256i codes = _mm256_setr_epi32(
        grid4(grid, index[0]), grid4(grid, index[1]), grid4(grid, index[2]), grid4(grid, index[3]),
        grid4(grid, index[4]), grid4(grid, index[5]), grid4(grid, index[6]), grid4(grid, index[7]));
    put(part, apply_signs(codes, signs[part]));
  }
}

inline void block_scales(const BlockIQ3_S& in, float* scales, float*) {
  const __m256i shifts = _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28);
  const __m256i words = _mm256_set1_epi32(static_cast<int>(load32(in.scales)));
  const __m256i steps = _mm256_and_si256(_mm256_srlv_epi32(words, shifts), _mm256_set1_epi32(15));
  put8_odd_steps(_cvtsh_ss(in.scale), steps, 1.0f, scales);
}
template <class Put>
inline void block_codes(const BlockIQ3_S& in, Put put) {
  const uint32_t* grid = kIq3SGrid.data();
  // The ninth bit of an index: bit k of the part's byte.
  const __m256i bit_of =
      _mm256_setr_epi16(0x1, 0x2, 0x4, 0x8, 0x10, 0x20, 0x40, 0x80, 0x100, 0x200, 0x400, 0x800,
                        0x1000, 0x2000, 0x4000, static_cast<int16_t>(0x8000));
  uint16_t index[64];
  for (int pair = 0; pair < 4; ++pair) {
    const int bits = in.high[2 * pair] | in.high[2 * pair + 1] << 8;
    const __m256i set = _mm256_and_si256(_mm256_set1_epi16(static_cast<int16_t>(bits)), bit_of);
    const __m256i upper =
        _mm256_and_si256(_mm256_cmpeq_epi16(set, bit_of), _mm256_set1_epi16(0x100));
    const __m256i lower = _mm256_cvtepu8_epi16(load128(in.index + 16 * pair));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(index + 16 * pair),
                        _mm256_or_si256(lower, upper));
  }
  for (int part = 0; part < 8; ++part) {
    const uint16_t* at = index + 8 * part;
    const __m256i codes = _mm256_setr_epi32(
        grid4(grid, at[0]), grid4(grid, at[1]), grid4(grid, at[2]), grid4(grid, at[3]),
        grid4(grid, at[4]), grid4(grid, at[5]), grid4(grid, at[6]), grid4(grid, at[7]));
    put(part, apply_signs(codes, load32(in.signs + 4 * part)));
  }
}

// ---- IQ1: codes are 8 * grid + 1, or - 1 where `negative` is set

inline __m256i shifted_codes(__m256i grid, __m256i negative) {
  const __m256i eightfold =
      _mm256_and_si256(_mm256_slli_epi16(grid, 3), _mm256_set1_epi8(static_cast<char>(0xf8)));
  return _mm256_add_epi8(eightfold, _mm256_or_si256(negative, _mm256_set1_epi8(1)));
}

inline void block_scales(const BlockIQ1_S& in, float* scales, float*) {
  const __m256i words = _mm256_cvtepu16_epi32(load128(in.high));
  const __m256i steps = _mm256_and_si256(_mm256_srli_epi32(words, 12), _mm256_set1_epi32(7));
  put8_odd_steps(_cvtsh_ss(in.scale), steps, 0.125f, scales);
}
template <class Put>
inline void block_codes(const BlockIQ1_S& in, Put put) {
  const uint64_t* grid = kIq1Grid.data();
  for (int part = 0; part < 8; ++part) {
    const uint8_t* index = in.index + 4 * part;
    const uint32_t high = in.high[part];
    const __m256i values = _mm256_setr_epi64x(
        grid8(grid, index[0] | (high << 8 & 0x700)), grid8(grid, index[1] | (high << 5 & 0x700)),
        grid8(grid, index[2] | (high << 2 & 0x700)), grid8(grid, index[3] | (high >> 1 & 0x700)));
    put(part, shifted_codes(values, _mm256_set1_epi8(high >> 15 != 0 ? -1 : 0)));
  }
}

inline void block_scales(const BlockIQ1_M& in, float* scales, float*) {
  const uint64_t words = load64(in.scales);
  // Nibbles at bits 0, 16, 32, 48 come to 48, 52, 56, 60; what else the product has is below,
  // and nothing of it meets.
  const uint64_t apart = words >> 12 & 0x000f000f000f000f;
  const auto bits = static_cast<uint16_t>(apart * 0x0001001001001000 >> 48);
  // Groups 0..3 are in word 0, 4..7 in word 1, and so on.
  const __m256i shifts = _mm256_setr_epi32(0, 3, 6, 9, 16, 19, 22, 25);
  for (int half = 0; half < 2; ++half) {
    const __m256i pair = _mm256_set1_epi32(static_cast<int>(words >> (32 * half)));
    const __m256i steps = _mm256_and_si256(_mm256_srlv_epi32(pair, shifts), _mm256_set1_epi32(7));
    put8_odd_steps(_cvtsh_ss(bits), steps, 0.125f, scales + 8 * half);
  }
}
template <class Put>
inline void block_codes(const BlockIQ1_M& in, Put put) {
  const uint64_t* grid = kIq1Grid.data();
  const __m256i delta_bit = _mm256_setr_epi64x(0x8, 0x80, 0x800, 0x8000);
  for (int part = 0; part < 8; ++part) {
    const uint8_t* index = in.index + 4 * part;
    const uint32_t high = in.high[2 * part] | static_cast<uint32_t>(in.high[2 * part + 1]) << 8;
    const __m256i values = _mm256_setr_epi64x(
        grid8(grid, index[0] | (high << 8 & 0x700)), grid8(grid, index[1] | (high << 4 & 0x700)),
        grid8(grid, index[2] | (high & 0x700)), grid8(grid, index[3] | (high >> 4 & 0x700)));
    const __m256i bits = _mm256_and_si256(_mm256_set1_epi64x(high), delta_bit);
    put(part, shifted_codes(values, _mm256_cmpeq_epi64(bits, delta_bit)));
  }
}

}  // namespace
}  // namespace ktx::kernels

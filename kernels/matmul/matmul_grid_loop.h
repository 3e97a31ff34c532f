// One token times rows of IQ1 and IQ2, whose weights are entries of a grid, 8 at a time:
// the sums of matmul_q8_loop.h, to the bit, in the order that suits the look-ups.
//
// A unit has 32 entries, four of each of its 8 blocks of 32. The entries e = 0..3 of all
// blocks make an operand of 64 bytes, and the activations are put in the same order first:
//
//   operand e: block 0, columns 8 e .. 8 e + 7 | block 1, likewise | ... | block 7
//
// So products of a group (two or four operands) add up in the same lanes, two of 32 bits a
// block, instead of in registers whose lanes are to be added. Signs (IQ2) negate the
// activations, which spares the codes an offset. The indices, signs and scales of 8 units
// are made before the first look-up: a unit alone is a chain of dependent instructions as
// long as the processor's window (IQ2_S, one Zen 4 core: 21 ns a unit, 15 in eights; 18 of
// matmul_q8_loop.h). IQ1's codes are 8 * grid + 1, or - 1 where a bit says so:
//
//   sum of code * q == 8 * sum of (grid + 1) * q - 7 * sum of q - 2 * sum of q where negative
//
// Included by matmul_q8_loop.h only.
#pragma once

#include "kernels/matmul/block_codes_iq_avx2.h"
#include "kernels/matmul/matmul.h"
#include "lib/formats/act_q8.h"

namespace ktx::kernels {
namespace {  // see block_codes_avx2.h

// What 256 activations bring, in the order of the operands. The sums are for IQ1: 7 times
// that of a block, or of its first and second half; twice that of a block; and those of
// pairs of entries, by half.
struct alignas(64) GridActUnit {
  int8_t q[4][64];
  int32_t seven[2][8];
  int32_t twice[8];
  int16_t sum8[2][16];
};

// Bytes 8 * e on of every block to q[e], and the sums that the format needs.
template <DType kType>
inline void grid_act_unit(const int8_t* q, const int16_t* sums, GridActUnit& out) {
  for (int b = 0; b < 8; ++b) {
    for (int e = 0; e < 4; ++e) std::memcpy(out.q[e] + 8 * b, q + 32 * b + 8 * e, 8);
    const int32_t first = sums[2 * b], second = sums[2 * b + 1];
    if constexpr (kType == DType::IQ1_S) {
      out.seven[0][b] = 7 * (first + second);
      out.twice[b] = 2 * (first + second);
    }
    if constexpr (kType == DType::IQ1_M) {
      out.seven[0][b] = 7 * first;
      out.seven[1][b] = 7 * second;
      // Unsigned bytes are added up by eights: 128 more each.
      const __m256i shifted = _mm256_xor_si256(load256(q + 32 * b), _mm256_set1_epi8(-128));
      int64_t eights[4];
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(eights),
                          _mm256_sad_epu8(shifted, _mm256_setzero_si256()));
      for (int e = 0; e < 4; ++e) {
        out.sum8[e / 2][2 * b + e % 2] = static_cast<int16_t>(eights[e] - 8 * 128);
      }
    }
  }
}

// 32 indices: `low` bytes, and above them the bits of `high`, byte for byte.
inline void join_indices(__m256i low, __m256i high, uint16_t* index) {
  const __m256i first = _mm256_unpacklo_epi8(low, high), second = _mm256_unpackhi_epi8(low, high);
  auto* out = reinterpret_cast<__m128i*>(index);
  _mm_storeu_si128(out, _mm256_castsi256_si128(first));
  _mm_storeu_si128(out + 1, _mm256_castsi256_si128(second));
  _mm_storeu_si128(out + 2, _mm256_extracti128_si256(first, 1));
  _mm_storeu_si128(out + 3, _mm256_extracti128_si256(second, 1));
}

// The lowest four fields of `bits` bits of each word of 32 bits to its four bytes.
template <int bits>
inline __m256i fields_to_bytes(__m256i words) {
  constexpr int kMask = (1 << bits) - 1, kPair = (1 << 2 * bits) - 1;
  const __m256i pairs =
      _mm256_and_si256(_mm256_or_si256(words, _mm256_slli_epi32(words, 16 - 2 * bits)),
                       _mm256_set1_epi32(kPair * 0x10001));
  return _mm256_and_si256(_mm256_or_si256(pairs, _mm256_slli_epi32(pairs, 8 - bits)),
                          _mm256_set1_epi32(kMask * 0x1010101));
}

// The sign bytes of entries 4 b + e to word e, byte b.
inline void store_entry_signs(__m256i signs, uint64_t (&out)[4]) {
  const __m256i by_entry = _mm256_shuffle_epi8(
      signs, _mm256_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15, 0, 4, 8, 12, 1,
                              5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));
  const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(out),
                      _mm256_permutevar8x32_epi32(by_entry, order));
}

// ---- a block, one struct a format: set() makes what look-ups need, entries(e) looks up
// operand e, codes() makes it unsigned, activations(e) are what it meets, and finish() turns
// the sums of that into the dots.

template <class V, DType kType>
struct GridCodes;

template <DType kType>
constexpr bool kHasGrid = kType == DType::IQ2_XXS || kType == DType::IQ2_XS ||
                          kType == DType::IQ2_S || kType == DType::IQ1_S || kType == DType::IQ1_M;

// Formats with signs.
template <class V>
struct SignedDots {
  uint64_t signs[4];

  KTX_ALWAYS_INLINE typename V::I activations(const GridActUnit& x, int e) const {
    return V::negate8(V::load64(x.q[e]), signs[e]);
  }
  KTX_ALWAYS_INLINE static typename V::I codes(typename V::I entries) { return entries; }
  template <int kParts>
  KTX_ALWAYS_INLINE static void finish(const GridActUnit&, __m256i (&)[kParts]) {}
};

template <class V>
struct GridCodes<V, DType::IQ2_XXS> : SignedDots<V> {
  const uint8_t* index;  // stay in the block
  KTX_ALWAYS_INLINE void set(const BlockIQ2_XXS& in) {
    index = reinterpret_cast<const uint8_t*>(in.codes);
    uint32_t words[8];
    store_signs(second_words(in), words);
    store_entry_signs(load256(words), this->signs);
  }
  KTX_ALWAYS_INLINE typename V::I entries(int e) const {
    return V::template eight<8>(kIq2XxsGrid.data(), index + e);
  }
};

template <class V>
struct GridCodes<V, DType::IQ2_XS> : SignedDots<V> {
  alignas(32) uint16_t index[32];
  KTX_ALWAYS_INLINE void set(const BlockIQ2_XS& in) {
    const __m256i first = load256(in.codes), second = load256(in.codes + 16);
    const __m256i packed =
        _mm256_packus_epi16(_mm256_srli_epi16(first, 9), _mm256_srli_epi16(second, 9));
    store_entry_signs(with_eighth_sign(_mm256_permute4x64_epi64(packed, 0xd8)), this->signs);
    const __m256i nine = _mm256_set1_epi16(511);
    _mm256_store_si256(reinterpret_cast<__m256i*>(index), _mm256_and_si256(first, nine));
    _mm256_store_si256(reinterpret_cast<__m256i*>(index) + 1, _mm256_and_si256(second, nine));
  }
  KTX_ALWAYS_INLINE typename V::I entries(int e) const {
    return V::template eight<4>(kIq2XsGrid.data(), index + e);
  }
};

template <class V>
struct GridCodes<V, DType::IQ2_S> : SignedDots<V> {
  alignas(32) uint16_t index[32];
  KTX_ALWAYS_INLINE void set(const BlockIQ2_S& in) {
    store_entry_signs(load256(in.signs), this->signs);
    const __m256i high =
        _mm256_cvtepu8_epi32(_mm_cvtsi64_si128(static_cast<int64_t>(load64(in.high))));
    join_indices(load256(in.index), fields_to_bytes<2>(high), index);
  }
  KTX_ALWAYS_INLINE typename V::I entries(int e) const {
    return V::template eight<4>(kIq2SGrid.data(), index + e);
  }
};

// Formats of -1, 0 and 1 with a shift. `negative`: twice the sum of q where it is negative.
template <class V>
struct ShiftedDots {
  alignas(32) uint16_t index[32];

  KTX_ALWAYS_INLINE typename V::I entries(int e) const {
    return V::template eight<4>(kIq1Grid.data(), index + e);
  }
  KTX_ALWAYS_INLINE static typename V::I activations(const GridActUnit& x, int e) {
    return V::load64(x.q[e]);
  }
  KTX_ALWAYS_INLINE static typename V::I codes(typename V::I entries) {
    return V::add8(entries, 1);
  }
  KTX_ALWAYS_INLINE static __m256i shifted(__m256i dot, __m256i seven, __m256i negative) {
    return _mm256_sub_epi32(_mm256_slli_epi32(dot, 3), _mm256_add_epi32(seven, negative));
  }
};

template <class V>
struct GridCodes<V, DType::IQ1_S> : ShiftedDots<V> {
  __m256i is_negative;  // of block b
  KTX_ALWAYS_INLINE void set(const BlockIQ1_S& in) {
    const __m256i high = _mm256_cvtepu16_epi32(load128(in.high));
    join_indices(load256(in.index), fields_to_bytes<3>(high), this->index);
    is_negative = _mm256_srai_epi32(_mm256_slli_epi32(high, 16), 31);
  }
  KTX_ALWAYS_INLINE void finish(const GridActUnit& x, __m256i (&dots)[1]) const {
    const __m256i negative = _mm256_and_si256(is_negative, load256(x.twice));
    dots[0] = this->shifted(dots[0], load256(x.seven[0]), negative);
  }
};

template <class V>
struct GridCodes<V, DType::IQ1_M> : ShiftedDots<V> {
  __m256i high;  // of block b: the nibbles of its four entries
  KTX_ALWAYS_INLINE void set(const BlockIQ1_M& in) {
    const __m128i pairs = load128(in.high), top = _mm_set1_epi8(7);
    const __m128i even = _mm_and_si128(pairs, top);
    const __m128i odd = _mm_and_si128(_mm_srli_epi16(pairs, 4), top);
    join_indices(load256(in.index),
                 _mm256_set_m128i(_mm_unpackhi_epi8(even, odd), _mm_unpacklo_epi8(even, odd)),
                 this->index);
    high = _mm256_cvtepu16_epi32(pairs);
  }
  KTX_ALWAYS_INLINE void finish(const GridActUnit& x, __m256i (&dots)[2]) const {
    // Bits 3 and 7, or 11 and 15, to the same bit of both halves of a word.
    const __m256i both = _mm256_or_si256(high, _mm256_slli_epi32(high, 12));
    const __m256i first = _mm256_and_si256(both, _mm256_set1_epi32(0x00080008));
    const __m256i second = _mm256_and_si256(both, _mm256_set1_epi32(0x08000800));
    const __m256i first_sums = _mm256_madd_epi16(first, load256(x.sum8[0]));    // times 8
    const __m256i second_sums = _mm256_madd_epi16(second, load256(x.sum8[1]));  // times 2048
    dots[0] = this->shifted(dots[0], load256(x.seven[0]), _mm256_srai_epi32(first_sums, 2));
    dots[1] = this->shifted(dots[1], load256(x.seven[1]), _mm256_srai_epi32(second_sums, 10));
  }
};

// The dots of part p of block b to lane b of dots[p].
template <class V, class Codes, int kParts>
KTX_ALWAYS_INLINE inline void grid_dots(const Codes& codes, const GridActUnit& x,
                                        __m256i (&dots)[kParts]) {
  KTX_UNROLL
  for (int p = 0; p < kParts; ++p) {
    typename V::I sum = V::zero_i();
    KTX_UNROLL
    for (int i = 0; i < 4 / kParts; ++i) {
      const int e = 4 / kParts * p + i;
      sum = V::dot64(sum, codes.codes(codes.entries(e)), codes.activations(x, e));
    }
    dots[p] = V::pair_sums(sum);
  }
  codes.finish(x, dots);
}

}  // namespace
}  // namespace ktx::kernels

// 16 rows of a panel as pairs of AVX2 registers, as panel_vec_avx512.h.
// Included by *_avx2.cc only.
#pragma once

#if !defined(__x86_64__)
#include "kernels/matmul/panel_vec_neon.h"
#else

#include "kernels/simd/vec_avx2.h"

namespace ktx::kernels {
namespace {

struct PanelAvx2 : Avx2 {
  using F = Avx2::F;
  using I = Avx2::I;
  static constexpr int kTileTokens = 4, kTilePanels = 1;

  KTX_INLINE I load64(const void* p) {
    const auto* v = static_cast<const __m256i*>(p);
    return {_mm256_loadu_si256(v), _mm256_loadu_si256(v + 1)};
  }
  KTX_INLINE void store64(void* p, I v) {
    _mm256_store_si256(static_cast<__m256i*>(p), v.lo);
    _mm256_store_si256(static_cast<__m256i*>(p) + 1, v.hi);
  }
  KTX_INLINE I zero_i() { return {_mm256_setzero_si256(), _mm256_setzero_si256()}; }
  KTX_INLINE I set1_i(int32_t v) { return {_mm256_set1_epi32(v), _mm256_set1_epi32(v)}; }
  KTX_INLINE I load_same(const void* p) {
    int32_t bits;
    __builtin_memcpy(&bits, p, sizeof bits);
    return set1_i(bits);
  }
  template <int n>
  KTX_INLINE I srl16(I v) {
    return {_mm256_srli_epi16(v.lo, n), _mm256_srli_epi16(v.hi, n)};
  }
  template <int n>
  KTX_INLINE I sll16(I v) {
    return {_mm256_slli_epi16(v.lo, n), _mm256_slli_epi16(v.hi, n)};
  }
  template <int n>
  KTX_INLINE I srl32(I v) {
    return {_mm256_srli_epi32(v.lo, n), _mm256_srli_epi32(v.hi, n)};
  }
  template <int n>
  KTX_INLINE I sll32(I v) {
    return {_mm256_slli_epi32(v.lo, n), _mm256_slli_epi32(v.hi, n)};
  }
  template <int n>
  KTX_INLINE I signed_byte(I v) {
    return {_mm256_srai_epi32(_mm256_slli_epi32(v.lo, 24 - 8 * n), 24),
            _mm256_srai_epi32(_mm256_slli_epi32(v.hi, 24 - 8 * n), 24)};
  }
  KTX_INLINE I and8(I v, int mask) { return and_all(v, _mm256_set1_epi8(static_cast<char>(mask))); }
  KTX_INLINE I and32(I v, int32_t mask) { return and_all(v, _mm256_set1_epi32(mask)); }
  KTX_INLINE I or_i(I a, I b) { return {_mm256_or_si256(a.lo, b.lo), _mm256_or_si256(a.hi, b.hi)}; }
  KTX_INLINE I pick(I a, I b, int mask) { return or_i(and8(a, mask), and8(b, ~mask)); }
  KTX_INLINE I sub8(I v, int n) {
    const __m256i all = _mm256_set1_epi8(static_cast<char>(n));
    return {_mm256_sub_epi8(v.lo, all), _mm256_sub_epi8(v.hi, all)};
  }
  KTX_INLINE I triple8(I v) {
    return {_mm256_add_epi8(v.lo, _mm256_add_epi8(v.lo, v.lo)),
            _mm256_add_epi8(v.hi, _mm256_add_epi8(v.hi, v.hi))};
  }
  KTX_INLINE I thirds(I v) { return {thirds(v.lo), thirds(v.hi)}; }
  KTX_INLINE I add32(I v, int32_t n) {
    const __m256i all = _mm256_set1_epi32(n);
    return {_mm256_add_epi32(v.lo, all), _mm256_add_epi32(v.hi, all)};
  }
  KTX_INLINE I max32(I a, I b) {
    return {_mm256_max_epi32(a.lo, b.lo), _mm256_max_epi32(a.hi, b.hi)};
  }
  KTX_INLINE I min32(I a, int32_t n) {
    const __m256i all = _mm256_set1_epi32(n);
    return {_mm256_min_epi32(a.lo, all), _mm256_min_epi32(a.hi, all)};
  }
  KTX_INLINE F as_float(I v) { return {_mm256_castsi256_ps(v.lo), _mm256_castsi256_ps(v.hi)}; }
  KTX_INLINE I as_int(F v) { return {_mm256_castps_si256(v.lo), _mm256_castps_si256(v.hi)}; }
  // (a & mask) | bits
  KTX_INLINE I or_masked(I a, int32_t mask, int32_t bits) {
    return or_i(and32(a, mask), set1_i(bits));
  }
  KTX_INLINE I lookup(const uint8_t* table, I index) {
    const __m256i row =
        _mm256_broadcastsi128_si256(_mm_load_si128(reinterpret_cast<const __m128i*>(table)));
    return {_mm256_shuffle_epi8(row, index.lo), _mm256_shuffle_epi8(row, index.hi)};
  }
  template <int w>
  KTX_INLINE I spread_bits(I v) {
    const __m256i control = _mm256_set_epi32(0x0C0C0C0C, 0x08080808, 0x04040404, 0, 0x0C0C0C0C,
                                             0x08080808, 0x04040404, 0);
    const __m256i place = _mm256_add_epi8(control, _mm256_set1_epi8(w / 2));
    const __m256i bits = _mm256_set1_epi32(w % 2 == 0 ? 0x08040201 : static_cast<int>(0x80402010));
    const I found = {
        _mm256_cmpeq_epi8(_mm256_and_si256(_mm256_shuffle_epi8(v.lo, place), bits), bits),
        _mm256_cmpeq_epi8(_mm256_and_si256(_mm256_shuffle_epi8(v.hi, place), bits), bits)};
    return and8(found, 16);
  }
  KTX_INLINE F low_halves(I v) {
    const I low = and32(v, 0xFFFF);
    const __m256i halves = _mm256_permute4x64_epi64(_mm256_packus_epi32(low.lo, low.hi), 0xD8);
    return {_mm256_cvtph_ps(_mm256_castsi256_si128(halves)),
            _mm256_cvtph_ps(_mm256_extracti128_si256(halves, 1))};
  }
  KTX_INLINE F high_halves(I v) { return low_halves(srl32<16>(v)); }
  KTX_INLINE I load_bytes16(const uint8_t* p) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    return {_mm256_cvtepu8_epi32(bytes), _mm256_cvtepu8_epi32(_mm_srli_si128(bytes, 8))};
  }
  // Codes above 127 would overflow the 16-bit sums of pairs: those go as 16-bit numbers.
  template <int kLargest>
  KTX_INLINE I dot(I sum, I codes, const int8_t* x) {
    int32_t word;
    __builtin_memcpy(&word, x, sizeof word);
    const __m256i four = _mm256_set1_epi32(word);
    if constexpr (kLargest <= 127) {
      const __m256i one = _mm256_set1_epi16(1);
      return {
          _mm256_add_epi32(sum.lo, _mm256_madd_epi16(_mm256_maddubs_epi16(codes.lo, four), one)),
          _mm256_add_epi32(sum.hi, _mm256_madd_epi16(_mm256_maddubs_epi16(codes.hi, four), one))};
    } else {
      const __m256i even = _mm256_srai_epi16(_mm256_slli_epi16(four, 8), 8);
      const __m256i odd = _mm256_srai_epi16(four, 8);
      return {add_wide(sum.lo, codes.lo, even, odd), add_wide(sum.hi, codes.hi, even, odd)};
    }
  }
  KTX_INLINE I dot_pair(I sum, I numbers, int32_t pair) {
    const __m256i two = _mm256_set1_epi32(pair);
    return {_mm256_add_epi32(sum.lo, _mm256_madd_epi16(numbers.lo, two)),
            _mm256_add_epi32(sum.hi, _mm256_madd_epi16(numbers.hi, two))};
  }
  // Asks for the line at p, which need not be memory of ours.
  KTX_INLINE void prefetch(const void* p) {
    _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T0);
  }
  KTX_INLINE void prefetch_second(const void* p) {  // into the second cache alone
    _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T1);
  }

 private:
  KTX_INLINE __m256i thirds(__m256i v) {
    // -1 where a byte is no less.
    const __m256i first = _mm256_set1_epi8(86), second = _mm256_set1_epi8(static_cast<char>(171));
    const __m256i has_first = _mm256_cmpeq_epi8(_mm256_max_epu8(v, first), v);
    const __m256i has_second = _mm256_cmpeq_epi8(_mm256_max_epu8(v, second), v);
    return _mm256_abs_epi8(_mm256_add_epi8(has_first, has_second));
  }
  KTX_INLINE I and_all(I v, __m256i mask) {
    return {_mm256_and_si256(v.lo, mask), _mm256_and_si256(v.hi, mask)};
  }
  KTX_INLINE __m256i add_wide(__m256i sum, __m256i codes, __m256i even, __m256i odd) {
    const __m256i low = _mm256_and_si256(codes, _mm256_set1_epi16(255));
    const __m256i high = _mm256_srli_epi16(codes, 8);
    sum = _mm256_add_epi32(sum, _mm256_madd_epi16(low, even));
    return _mm256_add_epi32(sum, _mm256_madd_epi16(high, odd));
  }
};

}  // namespace
}  // namespace ktx::kernels
#endif

// 16 float lanes and 64 bytes as one AVX-512 register. See README.md here.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "kernels/simd/inline.h"

namespace ktx::kernels {
namespace {  // one copy per file: see README.md

struct Avx512 {
  using F = __m512;
  // Register tiles of float products: 32 registers hold 16 sums and their operands.
  static constexpr int kTileRows = 4, kTileTokens = 4;

  KTX_INLINE F zero() { return _mm512_setzero_ps(); }
  KTX_INLINE F set1(float v) { return _mm512_set1_ps(v); }
  KTX_INLINE F load(const float* p) { return _mm512_loadu_ps(p); }
  KTX_INLINE void store(float* p, F v) { _mm512_storeu_ps(p, v); }
  // The first n of 16 lanes, 0 <= n < 16; the others are zero, and not written.
  KTX_INLINE F load_part(const float* p, int64_t n) { return _mm512_maskz_loadu_ps(mask(n), p); }
  KTX_INLINE void store_part(float* p, int64_t n, F v) { _mm512_mask_storeu_ps(p, mask(n), v); }
  KTX_INLINE F load_half(const uint16_t* p) {  // 16 IEEE halves
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  KTX_INLINE F load_int8(const int8_t* p) {  // 16 int8
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes));
  }

  KTX_INLINE F add(F a, F b) { return _mm512_add_ps(a, b); }
  KTX_INLINE F sub(F a, F b) { return _mm512_sub_ps(a, b); }
  KTX_INLINE F mul(F a, F b) { return _mm512_mul_ps(a, b); }
  KTX_INLINE F div(F a, F b) { return _mm512_div_ps(a, b); }
  KTX_INLINE F fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
  KTX_INLINE F fnma(F a, F b, F c) { return _mm512_fnmadd_ps(a, b, c); }  // c - a * b
  // A NaN in b wins, one in a is lost.
  KTX_INLINE F max(F a, F b) { return _mm512_max_ps(a, b); }
  KTX_INLINE F min(F a, F b) { return _mm512_min_ps(a, b); }

  // Four sums over lanes at once, each by the tree of README.md.
  KTX_INLINE __m128 sum4(F a, F b, F c, F d) {
    const __m256 ab = _mm256_hadd_ps(fold(a), fold(b));
    const __m256 cd = _mm256_hadd_ps(fold(c), fold(d));
    const __m256 abcd = _mm256_hadd_ps(ab, cd);
    return _mm_add_ps(_mm256_castps256_ps128(abcd), _mm256_extractf128_ps(abcd, 1));
  }
  KTX_INLINE float sum(F v) { return _mm_cvtss_f32(sum4(v, v, v, v)); }
  KTX_INLINE float max_of(F v) {
    const __m256 m8 = _mm256_max_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
    __m128 m = _mm_max_ps(_mm256_castps256_ps128(m8), _mm256_extractf128_ps(m8, 1));
    m = _mm_max_ps(m, _mm_movehl_ps(m, m));
    return _mm_cvtss_f32(_mm_max_ss(m, _mm_movehdup_ps(m)));
  }

  // v * 2^n for integers n in [-252, 254] (in float lanes), in two exact steps, so
  // that results may be subnormal or infinite.
  KTX_INLINE F scale_by_power(F v, F n) {
    const __m512i power = _mm512_cvtps_epi32(n);
    const __m512i first = _mm512_srai_epi32(power, 1);
    const __m512i second = _mm512_sub_epi32(power, first);
    return _mm512_mul_ps(_mm512_mul_ps(v, two_to(first)), two_to(second));
  }
  KTX_INLINE F round(F v) {
    return _mm512_roundscale_ps(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  }
  // v * 2^n of t = n + 1.5 * 2^23, for a result that is normal (or v and t NaN).
  KTX_INLINE F add_power(F v, F t) {
    return _mm512_castsi512_ps(
        _mm512_add_epi32(_mm512_castps_si512(v), _mm512_slli_epi32(_mm512_castps_si512(t), 23)));
  }
  // To BF16 and back: to nearest even; subnormals become zero, NaNs quiet.
  KTX_INLINE F round_bf16(F v) {
    const __m512i bits = _mm512_castps_si512(v);
    const __m512i last = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    const __m512i half = _mm512_add_epi32(last, _mm512_set1_epi32(0x7FFF));
    const __m512i sign = _mm512_set1_epi32(static_cast<int>(0x80000000));
    const __mmask16 nan = _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
    const __mmask16 zero = _mm512_testn_epi32_mask(bits, _mm512_set1_epi32(0x7F800000));
    __m512i r = _mm512_add_epi32(bits, half);
    r = _mm512_mask_or_epi32(r, nan, bits, _mm512_set1_epi32(0x400000));
    r = _mm512_and_si512(r, _mm512_set1_epi32(static_cast<int>(0xFFFF0000)));
    return _mm512_castsi512_ps(_mm512_mask_and_epi32(r, zero, bits, sign));
  }

  // ---- integers: codes are weights 0..255 ("unsigned") or -128..127 ("signed"), x is
  // -127..127, and all sums are exact.

  // 32 codes times 32 x: lane j of the result is the sum of products 4j .. 4j + 3.
  KTX_INLINE __m256i quads_unsigned(__m256i codes, __m256i x) {
    return _mm256_dpbusd_epi32(_mm256_setzero_si256(), codes, x);
  }
  KTX_INLINE __m256i quads_signed(__m256i codes, __m256i x) {
    return quads_unsigned(_mm256_abs_epi8(codes), _mm256_sign_epi8(x, codes));
  }

  // 16 int32, one for each row of a panel.
  using I = __m512i;
  KTX_INLINE I sub(I a, int32_t b) { return _mm512_sub_epi32(a, _mm512_set1_epi32(b)); }
  KTX_INLINE F to_float(I v) { return _mm512_cvtepi32_ps(v); }

  // 64 bytes: eight entries of a table, those of every kStep-th index.
  template <int kStep, class Index>
  KTX_INLINE I eight(const uint64_t* table, const Index* at) {
    const auto entry = [=](int i) __attribute__((always_inline)) {
      return _mm_loadl_epi64(reinterpret_cast<const __m128i*>(table + at[kStep * i]));
    };
    const auto four = [=](int i) __attribute__((always_inline)) {
      const __m128i low = _mm_unpacklo_epi64(entry(i), entry(i + 1));
      return _mm256_inserti128_si256(_mm256_castsi128_si256(low),
                                     _mm_unpacklo_epi64(entry(i + 2), entry(i + 3)), 1);
    };
    const __m256i low = four(0);
    return _mm512_inserti64x4(_mm512_castsi256_si512(low), four(4), 1);
  }
  KTX_INLINE I load64(const void* p) { return _mm512_loadu_si512(p); }
  KTX_INLINE I zero_i() { return _mm512_setzero_si512(); }
  KTX_INLINE I add8(I v, int n) {
    return _mm512_add_epi8(v, _mm512_set1_epi8(static_cast<char>(n)));
  }
  // Negates byte i where bit i is set.
  KTX_INLINE I negate8(I v, uint64_t bits) {
    return _mm512_mask_sub_epi8(v, bits, _mm512_setzero_si512(), v);
  }
  // sum + 64 codes (0..127) times 64 x, by fours.
  KTX_INLINE I dot64(I sum, I codes, I x) { return _mm512_dpbusd_epi32(sum, codes, x); }
  // Lane j: lanes 2j and 2j + 1.
  KTX_INLINE __m256i pair_sums(I v) {
    return _mm512_cvtepi64_epi32(_mm512_add_epi32(v, _mm512_srli_epi64(v, 32)));
  }

  // Codes of a panel that the sums below take.
  static constexpr int kLargestUnsigned = 255;
  static constexpr int kPanelTokens = 8;

  // 16 rows times the 4 * kSteps elements from x[t] of each token. codes: per step 4
  // bytes of each of the 16 rows.
  template <int kSteps, int kLargest, int kTokens>
  KTX_INLINE void panel_dots(const int8_t* codes, const int8_t* const* x, int64_t offset,
                             I (&out)[kTokens]) {
    for (int t = 0; t < kTokens; ++t) out[t] = _mm512_setzero_si512();
    KTX_UNROLL
    for (int s = 0; s < kSteps; ++s) {
      const __m512i four_of_each = _mm512_load_si512(codes + 64 * s);
      for (int t = 0; t < kTokens; ++t) {
        int32_t word;
        __builtin_memcpy(&word, x[t] + offset + 4 * s, sizeof word);
        out[t] = _mm512_dpbusd_epi32(out[t], four_of_each, _mm512_set1_epi32(word));
      }
    }
  }
  // No signed codes: 128 is added to them and taken off by the sums of x.
  template <int kSteps, int kTokens>
  KTX_INLINE void panel_dots_signed(const int8_t*, const int8_t* const*, int64_t, I (&)[kTokens]) {}

 private:
  KTX_INLINE __mmask16 mask(int64_t n) { return static_cast<__mmask16>((1u << n) - 1); }
  KTX_INLINE __m256 fold(F v) {
    return _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
  }
  KTX_INLINE __m512 two_to(__m512i e) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_add_epi32(e, _mm512_set1_epi32(127)), 23));
  }
};

}  // namespace
}  // namespace ktx::kernels

// 16 float lanes and 64 bytes as pairs of AVX2 registers. See README.md here.
#pragma once

#if !defined(__x86_64__)
#include "kernels/simd/vec_neon.h"
#else

#include <cstdint>

#include "kernels/simd/avx2.h"
#include "kernels/simd/inline.h"

namespace ktx::kernels {
namespace {  // one copy per file: see README.md

struct Avx2 {
  struct F {
    __m256 lo, hi;
  };
  // Register tiles of float products: 4 sums of two registers each, and their operands.
  static constexpr int kTileRows = 2, kTileTokens = 2;

  KTX_INLINE F zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
  KTX_INLINE F set1(float v) { return {_mm256_set1_ps(v), _mm256_set1_ps(v)}; }
  KTX_INLINE F load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
  KTX_INLINE void store(float* p, F v) {
    _mm256_storeu_ps(p, v.lo);
    _mm256_storeu_ps(p + 8, v.hi);
  }
  // The first n of 16 lanes, 0 <= n < 16; the others are zero, and not written.
  KTX_INLINE F load_part(const float* p, int64_t n) {
    return {_mm256_maskload_ps(p, mask(n)), _mm256_maskload_ps(p + 8, mask(n - 8))};
  }
  KTX_INLINE void store_part(float* p, int64_t n, F v) {
    _mm256_maskstore_ps(p, mask(n), v.lo);
    _mm256_maskstore_ps(p + 8, mask(n - 8), v.hi);
  }
  KTX_INLINE F load_half(const uint16_t* p) {  // 16 IEEE halves
    return {_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))),
            _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 8)))};
  }
  KTX_INLINE F load_int8(const int8_t* p) {  // 16 int8
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    return {_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes)),
            _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(bytes, 8)))};
  }

  KTX_INLINE F add(F a, F b) { return {_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)}; }
  KTX_INLINE F sub(F a, F b) { return {_mm256_sub_ps(a.lo, b.lo), _mm256_sub_ps(a.hi, b.hi)}; }
  KTX_INLINE F mul(F a, F b) { return {_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)}; }
  KTX_INLINE F div(F a, F b) { return {_mm256_div_ps(a.lo, b.lo), _mm256_div_ps(a.hi, b.hi)}; }
  KTX_INLINE F fma(F a, F b, F c) {
    return {_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)};
  }
  KTX_INLINE F fnma(F a, F b, F c) {  // c - a * b
    return {_mm256_fnmadd_ps(a.lo, b.lo, c.lo), _mm256_fnmadd_ps(a.hi, b.hi, c.hi)};
  }
  // A NaN in b wins, one in a is lost.
  KTX_INLINE F max(F a, F b) { return {_mm256_max_ps(a.lo, b.lo), _mm256_max_ps(a.hi, b.hi)}; }
  KTX_INLINE F min(F a, F b) { return {_mm256_min_ps(a.lo, b.lo), _mm256_min_ps(a.hi, b.hi)}; }

  // Four sums over lanes at once, each by the tree of README.md.
  KTX_INLINE __m128 sum4(F a, F b, F c, F d) {
    const __m256 ab = _mm256_hadd_ps(_mm256_add_ps(a.lo, a.hi), _mm256_add_ps(b.lo, b.hi));
    const __m256 cd = _mm256_hadd_ps(_mm256_add_ps(c.lo, c.hi), _mm256_add_ps(d.lo, d.hi));
    const __m256 abcd = _mm256_hadd_ps(ab, cd);
    return _mm_add_ps(_mm256_castps256_ps128(abcd), _mm256_extractf128_ps(abcd, 1));
  }
  KTX_INLINE float sum(F v) { return _mm_cvtss_f32(sum4(v, v, v, v)); }
  KTX_INLINE float max_of(F v) {
    const __m256 m8 = _mm256_max_ps(v.lo, v.hi);
    __m128 m = _mm_max_ps(_mm256_castps256_ps128(m8), _mm256_extractf128_ps(m8, 1));
    m = _mm_max_ps(m, _mm_movehl_ps(m, m));
    return _mm_cvtss_f32(_mm_max_ss(m, _mm_movehdup_ps(m)));
  }

  // v * 2^n for integers n in [-252, 254] (in float lanes), in two exact steps, so
  // that results may be subnormal or infinite.
  KTX_INLINE F scale_by_power(F v, F n) {
    return {scale_by_power(v.lo, n.lo), scale_by_power(v.hi, n.hi)};
  }
  KTX_INLINE F round(F v) {
    return {_mm256_round_ps(v.lo, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC),
            _mm256_round_ps(v.hi, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
  }
  // v * 2^n of t = n + 1.5 * 2^23, for a result that is normal (or v and t NaN).
  KTX_INLINE F add_power(F v, F t) { return {add_power(v.lo, t.lo), add_power(v.hi, t.hi)}; }
  // To BF16 and back: to nearest even; subnormals become zero, NaNs quiet.
  KTX_INLINE F round_bf16(F v) { return {round_bf16(v.lo), round_bf16(v.hi)}; }

  // ---- integers: codes are weights 0..127 ("unsigned") or -128..127 ("signed"), x is
  // -127..127, and all sums are exact.

  // 32 codes times 32 x: lane j of the result is the sum of products 4j .. 4j + 3.
  KTX_INLINE __m256i quads_unsigned(__m256i codes, __m256i x) {
    return _mm256_madd_epi16(_mm256_maddubs_epi16(codes, x), _mm256_set1_epi16(1));
  }
  KTX_INLINE __m256i quads_signed(__m256i codes, __m256i x) {
    return quads_unsigned(_mm256_abs_epi8(codes), _mm256_sign_epi8(x, codes));
  }

  // 16 int32, one for each row of a panel.
  struct I {
    __m256i lo, hi;
  };
  KTX_INLINE I sub(I a, int32_t b) {
    const __m256i all = _mm256_set1_epi32(b);
    return {_mm256_sub_epi32(a.lo, all), _mm256_sub_epi32(a.hi, all)};
  }
  KTX_INLINE F to_float(I v) { return {_mm256_cvtepi32_ps(v.lo), _mm256_cvtepi32_ps(v.hi)}; }

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
    return {four(0), four(4)};
  }
  KTX_INLINE I load64(const void* p) {
    const auto* v = static_cast<const __m256i*>(p);
    return {_mm256_loadu_si256(v), _mm256_loadu_si256(v + 1)};
  }
  KTX_INLINE I zero_i() { return {_mm256_setzero_si256(), _mm256_setzero_si256()}; }
  KTX_INLINE I add8(I v, int n) {
    const __m256i all = _mm256_set1_epi8(static_cast<char>(n));
    return {_mm256_add_epi8(v.lo, all), _mm256_add_epi8(v.hi, all)};
  }
  // Negates byte i where bit i is set.
  KTX_INLINE I negate8(I v, uint64_t bits) {
    return {negate8(v.lo, static_cast<uint32_t>(bits)),
            negate8(v.hi, static_cast<uint32_t>(bits >> 32))};
  }
  // sum + 64 codes (0..127) times 64 x, by fours.
  KTX_INLINE I dot64(I sum, I codes, I x) {
    return {_mm256_add_epi32(sum.lo, quads_unsigned(codes.lo, x.lo)),
            _mm256_add_epi32(sum.hi, quads_unsigned(codes.hi, x.hi))};
  }
  // Lane j: lanes 2j and 2j + 1.
  KTX_INLINE __m256i pair_sums(I v) {
    return _mm256_permute4x64_epi64(_mm256_hadd_epi32(v.lo, v.hi), 0xD8);
  }

  // Codes of a panel that the sums below take: 0 .. 127 here, or signed beyond.
  static constexpr int kLargestUnsigned = 127;
  static constexpr int kPanelTokens = 4;

  // 16 rows times the 4 * kSteps elements from x[t] of each token. codes: per step 4
  // bytes of each of the 16 rows. Sums of pairs stay in int16 for as many steps as
  // codes up to kLargest allow.
  template <int kSteps, int kLargest, int kTokens>
  KTX_INLINE void panel_dots(const int8_t* codes, const int8_t* const* x, int64_t offset,
                             I (&out)[kTokens]) {
    constexpr int kFit = 32767 / (2 * 127 * kLargest);
    constexpr int kRun = kFit >= 8 && kSteps >= 8 ? 8 : kFit >= 4 ? 4 : kFit >= 2 ? 2 : 1;
    KTX_UNROLL
    for (int first = 0; first < kSteps; first += kRun) {
      I sums[kTokens];
      KTX_UNROLL
      for (int s = first; s < first + kRun; ++s) {
        const __m256i lo = _mm256_load_si256(reinterpret_cast<const __m256i*>(codes + 64 * s));
        const __m256i hi = _mm256_load_si256(reinterpret_cast<const __m256i*>(codes + 64 * s + 32));
        for (int t = 0; t < kTokens; ++t) {
          const __m256i act = four_bytes(x[t] + offset + 4 * s);
          const __m256i low = _mm256_maddubs_epi16(lo, act), high = _mm256_maddubs_epi16(hi, act);
          sums[t].lo = s == first ? low : _mm256_add_epi16(sums[t].lo, low);
          sums[t].hi = s == first ? high : _mm256_add_epi16(sums[t].hi, high);
        }
      }
      for (int t = 0; t < kTokens; ++t) add_pairs(sums[t], first == 0, out[t]);
    }
  }
  // The same for signed codes.
  template <int kSteps, int kTokens>
  KTX_INLINE void panel_dots_signed(const int8_t* codes, const int8_t* const* x, int64_t offset,
                                    I (&out)[kTokens]) {
    KTX_UNROLL
    for (int s = 0; s < kSteps; ++s) {
      const __m256i lo = _mm256_load_si256(reinterpret_cast<const __m256i*>(codes + 64 * s));
      const __m256i hi = _mm256_load_si256(reinterpret_cast<const __m256i*>(codes + 64 * s + 32));
      const __m256i abs_lo = _mm256_abs_epi8(lo), abs_hi = _mm256_abs_epi8(hi);
      for (int t = 0; t < kTokens; ++t) {
        const __m256i act = four_bytes(x[t] + offset + 4 * s);
        const I pairs = {_mm256_maddubs_epi16(abs_lo, _mm256_sign_epi8(act, lo)),
                         _mm256_maddubs_epi16(abs_hi, _mm256_sign_epi8(act, hi))};
        add_pairs(pairs, s == 0, out[t]);
      }
    }
  }

 private:
  KTX_INLINE __m256i negate8(__m256i v, uint32_t bits) {
    const __m256i byte_of =
        _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303);
    const __m256i bit_of = _mm256_set1_epi64x(static_cast<int64_t>(0x8040201008040201));
    const __m256i spread = _mm256_shuffle_epi8(_mm256_set1_epi32(static_cast<int>(bits)), byte_of);
    const __m256i mask = _mm256_cmpeq_epi8(_mm256_and_si256(spread, bit_of), bit_of);
    return _mm256_sub_epi8(_mm256_xor_si256(v, mask), mask);
  }
  KTX_INLINE __m256i mask(int64_t n) {  // n < 0: none, n > 8: all
    const int count = static_cast<int>(n < 0 ? 0 : n > 8 ? 8 : n);
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(count), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  }
  KTX_INLINE __m256 round_bf16(__m256 v) {
    const __m256i bits = _mm256_castps_si256(v);
    const __m256i last = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i half = _mm256_add_epi32(last, _mm256_set1_epi32(0x7FFF));
    const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q));
    const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
    const __m256i upper = _mm256_set1_epi32(static_cast<int>(0xFFFF0000));
    const __m256i sign = _mm256_set1_epi32(static_cast<int>(0x80000000));
    const __m256i exponent = _mm256_and_si256(bits, _mm256_set1_epi32(0x7F800000));
    const __m256i zero = _mm256_cmpeq_epi32(exponent, _mm256_setzero_si256());
    __m256i r = _mm256_blendv_epi8(_mm256_add_epi32(bits, half), quiet, nan);
    r = _mm256_blendv_epi8(_mm256_and_si256(r, upper), _mm256_and_si256(bits, sign), zero);
    return _mm256_castsi256_ps(r);
  }
  KTX_INLINE __m256 add_power(__m256 v, __m256 t) {
    return _mm256_castsi256_ps(
        _mm256_add_epi32(_mm256_castps_si256(v), _mm256_slli_epi32(_mm256_castps_si256(t), 23)));
  }
  KTX_INLINE __m256 scale_by_power(__m256 v, __m256 n) {
    const __m256i power = _mm256_cvtps_epi32(n);
    const __m256i first = _mm256_srai_epi32(power, 1);
    const __m256i second = _mm256_sub_epi32(power, first);
    const __m256i bias = _mm256_set1_epi32(127);
    const auto two_to = [bias](__m256i e) __attribute__((always_inline)) {
      return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(e, bias), 23));
    };
    return _mm256_mul_ps(_mm256_mul_ps(v, two_to(first)), two_to(second));
  }
  KTX_INLINE __m256i four_bytes(const int8_t* p) {
    int32_t word;
    __builtin_memcpy(&word, p, sizeof word);
    return _mm256_set1_epi32(word);
  }
  KTX_INLINE void add_pairs(I pairs, bool first, I& out) {
    const __m256i one = _mm256_set1_epi16(1);
    const __m256i lo = _mm256_madd_epi16(pairs.lo, one), hi = _mm256_madd_epi16(pairs.hi, one);
    out.lo = first ? lo : _mm256_add_epi32(out.lo, lo);
    out.hi = first ? hi : _mm256_add_epi32(out.hi, hi);
  }
};

}  // namespace
}  // namespace ktx::kernels
#endif

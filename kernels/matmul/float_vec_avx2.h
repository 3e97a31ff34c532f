// What float_forms.h needs beyond kernels/simd, as pairs of AVX2 registers.
// Included by *_avx2.cc only.
#pragma once

#if !defined(__x86_64__)
#include "kernels/matmul/float_vec_neon.h"
#else

#include "kernels/simd/vec_avx2.h"

namespace ktx::kernels {
namespace {

struct FloatAvx2 : Avx2 {
  // Sums of a register tile, two registers each.
  static constexpr int kTileRows = 2, kTileTokens = 3, kDirectTokens = 2;
  static constexpr int kDirectSums = 4;  // with one token or two
  // The same where a lane is a row, and panels that meet one token together.
  static constexpr int kLanePanels = 1, kLaneTokens = 6, kOneTokenPanels = 4;

  KTX_INLINE F load_floats(const void* p) {
    const auto* v = static_cast<const __m256i*>(p);
    return as_floats(_mm256_loadu_si256(v), _mm256_loadu_si256(v + 1));
  }
  KTX_INLINE F load_bf16(const void* p) {
    const auto* v = static_cast<const __m128i*>(p);
    const __m256i lo = _mm256_cvtepu16_epi32(_mm_loadu_si128(v));
    const __m256i hi = _mm256_cvtepu16_epi32(_mm_loadu_si128(v + 1));
    return as_floats(_mm256_slli_epi32(lo, 16), _mm256_slli_epi32(hi, 16));
  }
  // The BF16 numbers at odd (even) places of 32.
  KTX_INLINE F odd_bf16(const void* p) {
    const __m256i upper = _mm256_set1_epi32(static_cast<int>(0xFFFF0000));
    const auto* v = static_cast<const __m256i*>(p);
    return as_floats(_mm256_and_si256(_mm256_loadu_si256(v), upper),
                     _mm256_and_si256(_mm256_loadu_si256(v + 1), upper));
  }
  KTX_INLINE F even_bf16(const void* p) {
    const auto* v = static_cast<const __m256i*>(p);
    return as_floats(_mm256_slli_epi32(_mm256_loadu_si256(v), 16),
                     _mm256_slli_epi32(_mm256_loadu_si256(v + 1), 16));
  }
  // The floats at even (odd) places of 32.
  KTX_INLINE F evens(F a, F b) {
    return {in_order(_mm256_shuffle_ps(a.lo, a.hi, 0x88)),
            in_order(_mm256_shuffle_ps(b.lo, b.hi, 0x88))};
  }
  KTX_INLINE F odds(F a, F b) {
    return {in_order(_mm256_shuffle_ps(a.lo, a.hi, 0xDD)),
            in_order(_mm256_shuffle_ps(b.lo, b.hi, 0xDD))};
  }

 private:
  KTX_INLINE F as_floats(__m256i lo, __m256i hi) {
    return {_mm256_castsi256_ps(lo), _mm256_castsi256_ps(hi)};
  }
  KTX_INLINE __m256 in_order(__m256 v) {
    return _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(v), 0xD8));
  }
};

}  // namespace
}  // namespace ktx::kernels
#endif

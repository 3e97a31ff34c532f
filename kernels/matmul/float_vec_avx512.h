// What float_forms.h needs beyond kernels/simd, as AVX-512 registers.
// Included by *_avx512.cc and *_avx512bf16.cc only.
#pragma once

#include "kernels/simd/vec_avx512.h"

namespace ktx::kernels {
namespace {

struct FloatAvx512 : Avx512 {
  // Sums of a register tile; with them 4 weights and an activation.
  static constexpr int kTileRows = 4, kTileTokens = 6, kDirectTokens = 4;
  static constexpr int kDirectSums = 16;  // of up to 8 rows
  // The same where a lane is a row, and panels that meet one token together.
  static constexpr int kLanePanels = 4, kLaneTokens = 6, kOneTokenPanels = 4;

  KTX_INLINE F load_floats(const void* p) { return _mm512_loadu_ps(p); }
  KTX_INLINE F load_bf16(const void* p) {
    const __m256i packed = _mm256_loadu_si256(static_cast<const __m256i*>(p));
    return as_floats(_mm512_slli_epi32(_mm512_cvtepu16_epi32(packed), 16));
  }
  // The BF16 numbers at odd (even) places of 32.
  KTX_INLINE F odd_bf16(const void* p) {
    const __m512i upper = _mm512_set1_epi32(static_cast<int>(0xFFFF0000));
    return as_floats(_mm512_and_si512(_mm512_loadu_si512(p), upper));
  }
  KTX_INLINE F even_bf16(const void* p) {
    return as_floats(_mm512_slli_epi32(_mm512_loadu_si512(p), 16));
  }
  // The floats at even (odd) places of 32.
  KTX_INLINE F evens(F a, F b) { return _mm512_permutex2var_ps(a, every_second(0), b); }
  KTX_INLINE F odds(F a, F b) { return _mm512_permutex2var_ps(a, every_second(1), b); }

 private:
  KTX_INLINE F as_floats(__m512i v) { return _mm512_castsi512_ps(v); }
  KTX_INLINE __m512i every_second(int first) {
    const __m512i twice =
        _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    return _mm512_add_epi32(twice, _mm512_set1_epi32(first));
  }
};

}  // namespace
}  // namespace ktx::kernels

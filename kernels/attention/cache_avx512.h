// What attention does with rows of the cache beyond vec_avx512.h: numbers of 16 and 8 bits to
// operands, and their transposition. Included by attention_<isa>.cc only.
#pragma once

#include "kernels/simd/vec_avx512.h"

namespace ktx::kernels {
namespace {

struct CacheAvx512 : Avx512 {
  KTX_INLINE F set1_half(const void* p) {  // an IEEE half
    int16_t half;
    __builtin_memcpy(&half, p, sizeof half);
    return _mm512_cvtph_ps(_mm256_set1_epi16(half));
  }

  // round_bf16 of numbers of at most 22 bits, zero or in [2^-100, 2^100], or infinite, or NaN: the
  // sum x + 2^16 x is rounded where BF16 ends.
  KTX_INLINE F round_short_bf16(F v) {
    const F r = fnma(v, set1(65536.0f), mul(v, set1(65537.0f)));
    // NaN, -0 and infinities as they are.
    return _mm512_fixupimm_ps(r, v, _mm512_set1_epi32(0x110121), 0);
  }

  // out[c * stride + r] = lane c of row(r), r and c up to 16.
  template <class Row>
  KTX_INLINE void transpose16(const Row& row, int64_t stride, float* out) {
    __m512 r[16], t[16];
    KTX_UNROLL
    for (int i = 0; i < 16; ++i) r[i] = row(i);
    KTX_UNROLL
    for (int i = 0; i < 16; i += 2) {
      t[i] = _mm512_unpacklo_ps(r[i], r[i + 1]);
      t[i + 1] = _mm512_unpackhi_ps(r[i], r[i + 1]);
    }
    // Four rows of columns i % 4 + 0, 4, 8 and 12 a register.
    KTX_UNROLL
    for (int i = 0; i < 16; i += 4) {
      r[i] = _mm512_shuffle_ps(t[i], t[i + 2], 0x44);
      r[i + 1] = _mm512_shuffle_ps(t[i], t[i + 2], 0xEE);
      r[i + 2] = _mm512_shuffle_ps(t[i + 1], t[i + 3], 0x44);
      r[i + 3] = _mm512_shuffle_ps(t[i + 1], t[i + 3], 0xEE);
    }
    KTX_UNROLL
    for (int c = 0; c < 4; ++c) {
      const __m512 a = _mm512_shuffle_f32x4(r[c], r[4 + c], 0x88);
      const __m512 b = _mm512_shuffle_f32x4(r[c], r[4 + c], 0xDD);
      const __m512 d = _mm512_shuffle_f32x4(r[8 + c], r[12 + c], 0x88);
      const __m512 e = _mm512_shuffle_f32x4(r[8 + c], r[12 + c], 0xDD);
      store(out + c * stride, _mm512_shuffle_f32x4(a, d, 0x88));
      store(out + (4 + c) * stride, _mm512_shuffle_f32x4(b, e, 0x88));
      store(out + (8 + c) * stride, _mm512_shuffle_f32x4(a, d, 0xDD));
      store(out + (12 + c) * stride, _mm512_shuffle_f32x4(b, e, 0xDD));
    }
  }
};

}  // namespace
}  // namespace ktx::kernels

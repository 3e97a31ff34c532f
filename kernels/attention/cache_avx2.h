// What attention does with rows of the cache beyond vec_avx2.h: numbers of 16 and 8 bits to
// operands, and their transposition. Included by attention_<isa>.cc only.
#pragma once

#if !defined(__x86_64__)
#include "kernels/attention/cache_neon.h"
#else

#include "kernels/simd/vec_avx2.h"

namespace ktx::kernels {
namespace {

struct CacheAvx2 : Avx2 {
  KTX_INLINE F set1_half(const void* p) {  // an IEEE half
    int16_t half;
    __builtin_memcpy(&half, p, sizeof half);
    const __m256 v = _mm256_cvtph_ps(_mm_set1_epi16(half));
    return {v, v};
  }
  KTX_INLINE F load_int8(const int8_t* p) {  // 16 int8
    const auto eight = [](const int8_t* at) __attribute__((always_inline)) {
      const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(at));
      return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes));
    };
    return {eight(p), eight(p + 8)};
  }

  // round_bf16 of numbers of at most 22 bits, zero or in [2^-100, 2^100], or infinite, or NaN: the
  // sum x + 2^16 x is rounded where BF16 ends.
  KTX_INLINE F round_short_bf16(F v) { return {round_short_bf16(v.lo), round_short_bf16(v.hi)}; }

  // out[c * stride + r] = lane c of row(r), r and c up to 16.
  template <class Row>
  KTX_INLINE void transpose16(const Row& row, int64_t stride, float* out) {
    for (int i = 0; i < 16; i += 8) {
      transpose8(
          [&](int r) __attribute__((always_inline)) { return row(i + r).lo; }, stride, out + i);
      transpose8(
          [&](int r) __attribute__((always_inline)) { return row(i + r).hi; }, stride,
          out + 8 * stride + i);
    }
  }

 private:
  KTX_INLINE __m256 round_short_bf16(__m256 v) {
    const __m256 sum = _mm256_mul_ps(v, _mm256_set1_ps(65537.0f));
    const __m256 r = _mm256_fnmadd_ps(v, _mm256_set1_ps(65536.0f), sum);
    // (r is NaN of infinities, and 0 of -0.)
    const __m256 finite = _mm256_max_ps(r, _mm256_sub_ps(v, _mm256_set1_ps(0x1p110f)));
    return _mm256_or_ps(finite, _mm256_and_ps(v, _mm256_set1_ps(-0.0f)));
  }
  template <class Row>
  KTX_INLINE void transpose8(const Row& row, int64_t stride, float* out) {
    __m256 r[8], t[8];
    KTX_UNROLL
    for (int i = 0; i < 8; ++i) r[i] = row(i);
    KTX_UNROLL
    for (int i = 0; i < 8; i += 2) {
      t[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
      t[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
    }
    KTX_UNROLL
    for (int i = 0; i < 8; i += 4) {
      r[i] = _mm256_shuffle_ps(t[i], t[i + 2], 0x44);
      r[i + 1] = _mm256_shuffle_ps(t[i], t[i + 2], 0xEE);
      r[i + 2] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0x44);
      r[i + 3] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0xEE);
    }
    KTX_UNROLL
    for (int i = 0; i < 4; ++i) {
      _mm256_storeu_ps(out + i * stride, _mm256_permute2f128_ps(r[i], r[i + 4], 0x20));
      _mm256_storeu_ps(out + (i + 4) * stride, _mm256_permute2f128_ps(r[i], r[i + 4], 0x31));
    }
  }
};

}  // namespace
}  // namespace ktx::kernels
#endif

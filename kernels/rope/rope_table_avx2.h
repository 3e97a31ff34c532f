// What rotary embeddings with AVX2 share: cos and sin of four angles at a time in double, once per
// token into a table, then used for all heads.
#pragma once

#include "kernels/simd/avx2.h"

namespace ktx::kernels {
namespace {

struct SinCos {
  __m256d sin, cos;
};

// x = n * pi/2 + r with |r| <= pi/4: Taylor series of sin and cos to r^13 and r^14
// (errors below 1e-13, and the result is rounded to float), exchanged and negated by
// n mod 4. pi/2 in two parts and fused products keep r right to
// 1e-16 * n, so for any position that a context has.
SinCos sin_cos(__m256d x) {
  const __m256d n = _mm256_round_pd(_mm256_mul_pd(x, _mm256_set1_pd(0.63661977236758134308)),
                                    _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  __m256d r = _mm256_fnmadd_pd(n, _mm256_set1_pd(1.57079632679489655800), x);
  r = _mm256_fnmadd_pd(n, _mm256_set1_pd(6.12323399573676603587e-17), r);
  const __m256d r2 = _mm256_mul_pd(r, r);
  const auto horner = [r2](__m256d sum, double next) __attribute__((always_inline)) {
    return _mm256_fmadd_pd(sum, r2, _mm256_set1_pd(next));
  };
  __m256d s = _mm256_set1_pd(1.0 / 6227020800);
  s = horner(s, -1.0 / 39916800);
  s = horner(s, 1.0 / 362880);
  s = horner(s, -1.0 / 5040);
  s = horner(s, 1.0 / 120);
  s = horner(s, -1.0 / 6);
  s = horner(s, 1.0);
  s = _mm256_mul_pd(s, r);
  __m256d c = _mm256_set1_pd(-1.0 / 87178291200);
  c = horner(c, 1.0 / 479001600);
  c = horner(c, -1.0 / 3628800);
  c = horner(c, 1.0 / 40320);
  c = horner(c, -1.0 / 720);
  c = horner(c, 1.0 / 24);
  c = horner(c, -1.0 / 2);
  c = horner(c, 1.0);
  // n as an integer in the low bits of the mantissa of n + 1.5 * 2^52.
  const __m256i k = _mm256_castpd_si256(_mm256_add_pd(n, _mm256_set1_pd(6755399441055744.0)));
  const __m256i one = _mm256_set1_epi64x(1);
  const __m256d odd = _mm256_castsi256_pd(_mm256_cmpeq_epi64(_mm256_and_si256(k, one), one));
  const __m256i sin_sign = _mm256_slli_epi64(_mm256_srli_epi64(k, 1), 63);
  const __m256i cos_sign = _mm256_slli_epi64(_mm256_srli_epi64(_mm256_add_epi64(k, one), 1), 63);
  return {_mm256_xor_pd(_mm256_blendv_pd(s, c, odd), _mm256_castsi256_pd(sin_sign)),
          _mm256_xor_pd(_mm256_blendv_pd(c, s, odd), _mm256_castsi256_pd(cos_sign))};
}

// cos[i] and sin[i] of position(i) * inv_freq[i], times mscale; position(i) gives those of i to i
// + 3.
template <class Positions>
void fill_table(Positions&& position, const float* inv_freq, float mscale, int64_t half, float* cos,
                float* sin) {
  const __m128 scale = _mm_set1_ps(mscale);
  for (int64_t i = 0; i < half; i += 4) {
    const int64_t left = half - i;
    const __m128i mask = _mm_cmpgt_epi32(_mm_set1_epi32(static_cast<int>(left < 4 ? left : 4)),
                                         _mm_setr_epi32(0, 1, 2, 3));
    const __m128 angle = _mm_mul_ps(position(i), _mm_maskload_ps(inv_freq + i, mask));
    const SinCos both = sin_cos(_mm256_cvtps_pd(angle));
    _mm_maskstore_ps(cos + i, mask, _mm_mul_ps(_mm256_cvtpd_ps(both.cos), scale));
    _mm_maskstore_ps(sin + i, mask, _mm_mul_ps(_mm256_cvtpd_ps(both.sin), scale));
  }
}

void rotate_halves(const float* x, float* y, int64_t half, const float* cos, const float* sin) {
  int64_t i = 0;
  for (; i + 8 <= half; i += 8) {
    const __m256 c = _mm256_loadu_ps(cos + i), s = _mm256_loadu_ps(sin + i);
    const __m256 a = _mm256_loadu_ps(x + i), b = _mm256_loadu_ps(x + half + i);
    _mm256_storeu_ps(y + i, _mm256_sub_ps(_mm256_mul_ps(a, c), _mm256_mul_ps(b, s)));
    _mm256_storeu_ps(y + half + i, _mm256_add_ps(_mm256_mul_ps(a, s), _mm256_mul_ps(b, c)));
  }
  for (; i < half; ++i) {
    const float a = x[i], b = x[half + i];
    y[i] = a * cos[i] - b * sin[i];
    y[half + i] = a * sin[i] + b * cos[i];
  }
}

void rotate_pairs(const float* x, float* y, int64_t half, const float* cos, const float* sin) {
  int64_t i = 0;
  for (; i + 4 <= half; i += 4) {
    // (a0 b0 a1 b1 ...) * (c0 c0 c1 c1 ...) -+ (b0 a0 b1 a1 ...) * (s0 s0 s1 s1 ...)
    const __m256i twice = _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3);
    const __m256 c = _mm256_permutevar8x32_ps(_mm256_castps128_ps256(_mm_loadu_ps(cos + i)), twice);
    const __m256 s = _mm256_permutevar8x32_ps(_mm256_castps128_ps256(_mm_loadu_ps(sin + i)), twice);
    const __m256 ab = _mm256_loadu_ps(x + 2 * i);
    const __m256 ba = _mm256_permute_ps(ab, 0xB1);
    _mm256_storeu_ps(y + 2 * i, _mm256_addsub_ps(_mm256_mul_ps(ab, c), _mm256_mul_ps(ba, s)));
  }
  for (; i < half; ++i) {
    const float a = x[2 * i], b = x[2 * i + 1];
    y[2 * i] = a * cos[i] - b * sin[i];
    y[2 * i + 1] = b * cos[i] + a * sin[i];
  }
}

}  // namespace
}  // namespace ktx::kernels

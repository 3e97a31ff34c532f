// What attention does with rows of the cache beyond vec_neon.h. Included by cache_avx2.h on ARM.
#pragma once

#include "kernels/simd/vec_neon.h"

namespace ktx::kernels {
namespace {

struct CacheNeon : Neon {
  KTX_INLINE F set1_half(const void* p) {  // an IEEE half
    uint16_t half;
    __builtin_memcpy(&half, p, sizeof half);
    const float32x4_t all = halves(vdup_n_u16(half));
    return {{all, all, all, all}};
  }

  // round_bf16 of numbers of at most 22 bits, zero or in [2^-100, 2^100], or infinite, or NaN.
  KTX_INLINE F round_short_bf16(F x) { return round_bf16(x); }

  // out[c * stride + r] = lane c of row(r), r and c up to 16.
  template <class Row>
  KTX_INLINE void transpose16(const Row& row, int64_t stride, float* out) {
    for (int r = 0; r < 16; r += 4) {
      const F rows[4] = {row(r), row(r + 1), row(r + 2), row(r + 3)};
      KTX_UNROLL
      for (int i = 0; i < 4; ++i) {
        const float32x4_t a = vtrn1q_f32(rows[0].v[i], rows[1].v[i]);
        const float32x4_t b = vtrn2q_f32(rows[0].v[i], rows[1].v[i]);
        const float32x4_t c = vtrn1q_f32(rows[2].v[i], rows[3].v[i]);
        const float32x4_t d = vtrn2q_f32(rows[2].v[i], rows[3].v[i]);
        float* at = out + 4 * i * stride + r;
        vst1q_f32(at, low_pairs(a, c));
        vst1q_f32(at + stride, low_pairs(b, d));
        vst1q_f32(at + 2 * stride, high_pairs(a, c));
        vst1q_f32(at + 3 * stride, high_pairs(b, d));
      }
    }
  }

 private:
  KTX_INLINE float32x4_t low_pairs(float32x4_t a, float32x4_t b) {
    return vreinterpretq_f32_f64(vtrn1q_f64(vreinterpretq_f64_f32(a), vreinterpretq_f64_f32(b)));
  }
  KTX_INLINE float32x4_t high_pairs(float32x4_t a, float32x4_t b) {
    return vreinterpretq_f32_f64(vtrn2q_f64(vreinterpretq_f64_f32(a), vreinterpretq_f64_f32(b)));
  }
};

using CacheAvx2 = CacheNeon;

}  // namespace
}  // namespace ktx::kernels

// The intrinsics of AVX2, FMA and F16C that *_avx2.cc files use beside the lanes of vec_avx2.h: the
// processor's own on x86; on 64-bit ARM those of SIMDe (SIMD Everywhere), which are NEON, bit for
// bit.
//
// Included by files of that suffix, and by headers that only such files include.
#pragma once

#if defined(__x86_64__)
#include <immintrin.h>
#else
#define SIMDE_ENABLE_NATIVE_ALIASES
#include <arm_neon.h>
#include <simde/x86/avx2.h>
#include <simde/x86/f16c.h>
#include <simde/x86/fma.h>

#include <cstdint>

// SIMDe 0.7.4 lacks what follows, and leaves signalling NaNs as they are where halves become
// floats.
#define _MM_FROUND_NO_EXC SIMDE_MM_FROUND_NO_EXC
#undef _mm256_cvtph_ps

namespace ktx::kernels {
namespace {

inline float _cvtsh_ss(uint16_t bits) {
  __fp16 half;
  __builtin_memcpy(&half, &bits, sizeof half);
  return half;
}
inline uint16_t _cvtss_sh(float x, int) {  // to nearest, ties to even
  const __fp16 half = static_cast<__fp16>(x);
  uint16_t bits;
  __builtin_memcpy(&bits, &half, sizeof bits);
  return bits;
}

inline __m256 _mm256_cvtph_ps(__m128i halves) {
  const float16x8_t all = vreinterpretq_f16_s64(halves);
  return _mm256_set_m128(vcvt_high_f32_f16(all), vcvt_f32_f16(vget_low_f16(all)));
}

}  // namespace
}  // namespace ktx::kernels
#endif

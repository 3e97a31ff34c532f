#include <immintrin.h>

#include "kernels/probe/int8_peak.h"

namespace ktx::kernels {

int64_t int8_peak_avx2(int64_t rounds, int32_t* sink);

int64_t int8_peak_avx2(int64_t rounds, int32_t* sink) {
  constexpr int kSums = 8;
  __m256i sums[kSums];
  for (int s = 0; s < kSums; ++s) sums[s] = _mm256_set1_epi32(s);
  __m256i a = _mm256_set1_epi8(3);
  const __m256i b = _mm256_set1_epi8(-2), ones = _mm256_set1_epi16(1);
  for (int64_t i = 0; i < rounds; ++i) {
    for (int s = 0; s < kSums; ++s) {
      __asm__ volatile("" : "+x"(a));  // unknown to the compiler: nothing to hoist
      const __m256i pairs = _mm256_maddubs_epi16(a, b);
      sums[s] = _mm256_add_epi32(sums[s], _mm256_madd_epi16(pairs, ones));
    }
  }
  for (int s = 1; s < kSums; ++s) sums[0] = _mm256_xor_si256(sums[0], sums[s]);
  *sink = _mm256_extract_epi32(sums[0], 0);
  return rounds * kSums * 32 * 2;
}

}  // namespace ktx::kernels

#include "kernels/probe/int8_peak.h"
#include "kernels/simd/vec_avx512.h"

namespace ktx::kernels {

int64_t int8_peak_avx512(int64_t rounds, int32_t* sink);

int64_t int8_peak_avx512(int64_t rounds, int32_t* sink) {
  constexpr int kSums = 16;  // two a cycle, four to five cycles each
  __m512i sums[kSums];
  KTX_UNROLL
  for (int s = 0; s < kSums; ++s) sums[s] = _mm512_set1_epi32(s);
  __m512i a = _mm512_set1_epi8(3);
  const __m512i b = _mm512_set1_epi8(-2);
  for (int64_t i = 0; i < rounds; ++i) {
    __asm__ volatile("" : "+v"(a));  // unknown to the compiler: nothing to hoist
    // (As the intrinsic, of which g++ 12 makes two copies of each sum: Emerald Rapids then does 0.6
    // of what it can.)
    KTX_UNROLL
    for (int s = 0; s < kSums; ++s) asm("vpdpbusd %2, %1, %0" : "+v"(sums[s]) : "v"(a), "v"(b));
  }
  KTX_UNROLL
  for (int s = 1; s < kSums; ++s) sums[0] = _mm512_xor_si512(sums[0], sums[s]);
  *sink = _mm512_reduce_add_epi32(sums[0]);
  return rounds * kSums * 64 * 2;
}

}  // namespace ktx::kernels

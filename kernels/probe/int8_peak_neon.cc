// With the widening products that every 64-bit ARM processor has.
#include <arm_neon.h>

#include "kernels/probe/int8_peak.h"

namespace ktx::kernels {

int64_t int8_peak_neon(int64_t rounds, int32_t* sink);

int64_t int8_peak_neon(int64_t rounds, int32_t* sink) {
  constexpr int kSums = 8;
  int32x4_t sums[kSums];
  for (int s = 0; s < kSums; ++s) sums[s] = vdupq_n_s32(s);
  int8x16_t a = vdupq_n_s8(3);
  const int8x16_t b = vdupq_n_s8(-2);
  for (int64_t i = 0; i < rounds; ++i) {
    for (int32x4_t& sum : sums) {
      __asm__ volatile("" : "+w"(a));  // unknown to the compiler: nothing to hoist
      const int16x8_t low = vmull_s8(vget_low_s8(a), vget_low_s8(b));
      sum = vpadalq_s16(sum, vmlal_high_s8(low, a, b));
    }
  }
  for (int s = 1; s < kSums; ++s) sums[0] = veorq_s32(sums[0], sums[s]);
  *sink = vgetq_lane_s32(sums[0], 0);
  return rounds * kSums * 16 * 2;
}

}  // namespace ktx::kernels

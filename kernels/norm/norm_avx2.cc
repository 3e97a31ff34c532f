// RMS norm with AVX2: the loop of rms_norm_loop.h.
#include "kernels/simd/vec_avx2.h"
// (the policy first: the loop uses its macros)
#include "kernels/norm/rms_norm_loop.h"

namespace ktx::kernels {

void rms_norm_avx2(const RmsNormArgs& a);

void rms_norm_avx2(const RmsNormArgs& a) {
  rms_norm<Avx2>(a);
}

}  // namespace ktx::kernels

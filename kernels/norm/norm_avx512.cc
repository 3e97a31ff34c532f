// RMS norm with AVX-512: the loop of rms_norm_loop.h.
#include "kernels/simd/vec_avx512.h"
// (the policy first: the loop uses its macros)
#include "kernels/norm/rms_norm_loop.h"

namespace ktx::kernels {

void rms_norm_avx512(const RmsNormArgs& a);

void rms_norm_avx512(const RmsNormArgs& a) {
  rms_norm<Avx512>(a);
}

}  // namespace ktx::kernels

// Norms with AVX2: the loops of rms_norm_loop.h and layer_norm_loop.h.
#include "kernels/simd/vec_avx2.h"
// (the policy first: the loops use its macros)
#include "kernels/norm/layer_norm_loop.h"
#include "kernels/norm/rms_norm_loop.h"

namespace ktx::kernels {

void rms_norm_avx2(const RmsNormArgs& a);
void layer_norm_avx2(const LayerNormArgs& a);

void rms_norm_avx2(const RmsNormArgs& a) {
  rms_norm<Avx2>(a);
}
void layer_norm_avx2(const LayerNormArgs& a) {
  layer_norm<Avx2>(a);
}

}  // namespace ktx::kernels

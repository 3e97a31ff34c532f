// Element-wise ops with AVX2: the loops of activation_loop.h.
#include "kernels/simd/vec_avx2.h"
// (the policy first: the loops use its macros)
#include "kernels/activation/activation_loop.h"

namespace ktx::kernels {

void swiglu_avx2(const SwigluArgs& a);
void add_avx2(const AddArgs& a);

void swiglu_avx2(const SwigluArgs& a) {
  swiglu<Avx2>(a);
}
void add_avx2(const AddArgs& a) {
  add<Avx2>(a);
}

}  // namespace ktx::kernels

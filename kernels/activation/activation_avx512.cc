// Element-wise ops with AVX-512: the loops of activation_loop.h.
#include "kernels/simd/vec_avx512.h"
// (the policy first: the loops use its macros)
#include "kernels/activation/activation_loop.h"

namespace ktx::kernels {

void swiglu_avx512(const SwigluArgs& a);
void add_avx512(const AddArgs& a);

void swiglu_avx512(const SwigluArgs& a) {
  swiglu<Avx512>(a);
}
void add_avx512(const AddArgs& a) {
  add<Avx512>(a);
}

}  // namespace ktx::kernels

// State-space layers with AVX-512: the loops of state_space_loop.h.
#include "kernels/simd/vec_avx512.h"
// (the policy first: the loops use its macros)
#include "kernels/state_space/state_space_loop.h"

namespace ktx::kernels {

void state_space_avx512(const StateSpaceArgs& a);

void state_space_avx512(const StateSpaceArgs& a) {
  state_space<Avx512, 2, 4>(a);
}

}  // namespace ktx::kernels

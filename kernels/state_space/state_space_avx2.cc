// State-space layers with AVX2: the loops of state_space_loop.h.
#include "kernels/simd/vec_avx2.h"
// (the policy first: the loops use its macros)
#include "kernels/state_space/state_space_loop.h"

namespace ktx::kernels {

void state_space_avx2(const StateSpaceArgs& a);

void state_space_avx2(const StateSpaceArgs& a) {
  state_space<Avx2, 1, 2>(a);
}

}  // namespace ktx::kernels

// Attention with AVX-512: the loops of attention_loop.h.
#include "kernels/simd/vec_avx512.h"
// (the policy first: the loops use its macros)
#include "kernels/attention/attention_loop.h"

namespace ktx::kernels {

void attention_avx512(const AttentionArgs& a);

void attention_avx512(const AttentionArgs& a) {
  attention<Avx512>(a);
}

}  // namespace ktx::kernels

// The ops of delta nets with AVX-512: the loops of delta_net_loop.h.
#include "kernels/simd/vec_avx512.h"
// (the policy first: the loops use its macros)
#include "kernels/delta_net/delta_net_loop.h"

namespace ktx::kernels {

void causal_conv_avx512(const CausalConvArgs& a);
void delta_rule_avx512(const DeltaRuleArgs& a);

void causal_conv_avx512(const CausalConvArgs& a) {
  causal_conv<Avx512>(a);
}
void delta_rule_avx512(const DeltaRuleArgs& a) {
  delta_rule<Avx512, 4>(a);
}

}  // namespace ktx::kernels

// The ops of delta nets with AVX2: the loops of delta_net_loop.h.
#include "kernels/simd/vec_avx2.h"
// (the policy first: the loops use its macros)
#include "kernels/delta_net/delta_net_loop.h"

namespace ktx::kernels {

void causal_conv_avx2(const CausalConvArgs& a);
void delta_rule_avx2(const DeltaRuleArgs& a);

void causal_conv_avx2(const CausalConvArgs& a) {
  causal_conv<Avx2>(a);
}
void delta_rule_avx2(const DeltaRuleArgs& a) {
  delta_rule<Avx2, 2>(a);
}

}  // namespace ktx::kernels

// delta_net: a causal convolution, the delta rule over it, and in place on the rule's output the
// norm of the heads and the gate.
#include "lib/program/fused/fused_rules.h"

namespace ktx::program {

void find_delta_net(GroupSearch& search, int32_t rule) {
  if (search.attrs<DeltaRuleAttrs>(rule).by_channel != 0) return;  // three convolutions
  const int32_t x = search.in(rule, 0), y = search.out(rule);
  const auto conv = search.writer(x, rule);
  if (!conv || !search.is(*conv, StepOp::CausalConv) || !search.only(x, {*conv, rule})) return;
  int32_t norm = kAbsent, glu = kAbsent;
  for (int32_t i : search.readers(y)) {
    if (search.out(i) != y || i < rule) continue;
    if (norm == kAbsent && search.is(i, StepOp::RmsNorm)) {
      norm = i;
    } else if (norm != kAbsent && glu == kAbsent && search.is(i, StepOp::Glu)) {
      glu = i;
    } else {
      return;
    }
  }
  if (glu == kAbsent || glu >= search.end() || search.in(glu, 1) != y || search.in(glu, 0) == y)
    return;
  std::vector<int32_t> read = {search.in(*conv, 0), search.in(glu, 0)};
  for (size_t operand : {1, 2}) {
    if (search.in(rule, operand) != kAbsent) read.push_back(search.in(rule, operand));
  }
  search.add(FusedOp::DeltaNet, {*conv, rule, norm, glu}, read, {y});
}

void describe_delta_net(kernels::GpuForm& form, const GroupMembers& steps) {
  const Step& conv = steps.of(StepOp::CausalConv);
  form.conv = std::get<CausalConvAttrs>(conv.attrs);
  form.delta = steps.attrs<DeltaRuleAttrs>(StepOp::DeltaRule);
  form.bias = steps.has_weight(conv, 1);
  form.alike = steps.is_norm_of_heads(steps.of(StepOp::RmsNorm), form.delta.value_heads);
}

}  // namespace ktx::program

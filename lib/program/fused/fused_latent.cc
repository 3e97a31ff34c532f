// latent: absorbed MLA, the matmul_heads of the query, attention over the latents, the matmul_heads
// of its values. Prompts may take another form of it (kernels/cuda/mla/cuda_latent.h).
#include "lib/program/fused/fused_rules.h"

namespace ktx::program {

// The query's rotary part is in q_latent already: its rope is no part of this. What the last step
// writes often lies where q_latent was.
void find_latent(GroupSearch& search, int32_t attention) {
  if (!search.attrs<AttentionAttrs>(attention).value_in_key) return;  // fused_attention.cc
  const int32_t q_latent = search.in(attention, 0), latent = search.out(attention);
  const auto absorb = search.writer(q_latent, attention);
  if (!absorb || !search.is(*absorb, StepOp::MatmulHeads)) return;
  if (search.readers(latent).size() != 1) return;
  const int32_t expand = search.readers(latent)[0];
  if (expand < attention || expand >= search.end() || !search.is(expand, StepOp::MatmulHeads)) {
    return;
  }
  if (!search.only(q_latent, {attention})) return;
  // The other form takes what the first step reads for what attention reads, and so on.
  const auto begin_in = [&](int32_t i) { return search.step(i).inputs[0].offset; };
  const auto begin_out = [&](int32_t i) { return search.step(i).outputs[0].offset; };
  if (begin_out(*absorb) != begin_in(attention) || begin_out(attention) != begin_in(expand)) return;
  search.add(FusedOp::Latent, {*absorb, attention, expand}, {search.in(*absorb, 0), q_latent},
             {search.out(expand)}, true);
}

void describe_latent(kernels::GpuForm& form, const GroupMembers& steps) {
  const Step &absorb = steps.of(StepOp::MatmulHeads, 0), &expand = steps.of(StepOp::MatmulHeads, 1);
  form.attention = steps.attrs<AttentionAttrs>(StepOp::Attention);
  form.absorb = std::get<MatmulHeadsAttrs>(absorb.attrs);
  form.expand = std::get<MatmulHeadsAttrs>(expand.attrs);
  form.weights = {steps.weight(absorb), steps.weight(expand)};
  form.aligned = steps.aligned(expand.outputs[0], 2);
}

}  // namespace ktx::program

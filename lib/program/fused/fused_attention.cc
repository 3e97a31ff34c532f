// attention: head norms, rope of q and k, kv_store and attention. rope_grid is rope where a pass
// has no tokens of images, and no other pass is fused.
#include <algorithm>

#include "lib/ops/rope_in_place.h"
#include "lib/program/fused/fused_rules.h"

namespace ktx::program {

void find_attention(GroupSearch& search, int32_t attention) {
  const auto& attrs = search.attrs<AttentionAttrs>(attention);
  if (attrs.value_in_key) return;  // fused_latent.cc
  int32_t store = attention;
  const int32_t from = std::max(search.first(), attention - kMostSpan);
  for (int32_t i = attention; i > from && store == attention; --i) {
    if (search.is(i - 1, StepOp::KvStore) && search.attrs<KvStoreAttrs>(i - 1).slot == attrs.slot) {
      store = i - 1;
    }
  }
  if (store == attention || search.in(store, 1) == kAbsent) return;
  const int32_t q = search.in(attention, 0), k = search.in(store, 0), v = search.in(store, 1);
  GroupSearch::Steps steps = {store, attention};
  // In place on q and on k: a rope, and before it perhaps a norm of the heads.
  for (const auto& [value, user] : {std::pair{q, attention}, std::pair{k, store}}) {
    const auto rope = search.writer(value, user);
    if (!rope || search.in(*rope, 0) != value) return;
    if (!search.is(*rope, StepOp::Rope) && !search.is(*rope, StepOp::RopeGrid)) return;
    steps.push_back(*rope);
    const auto norm = search.writer(value, *rope);
    if (norm && search.is(*norm, StepOp::RmsNorm) && search.in(*norm, 0) == value) {
      steps.push_back(*norm);
    }
  }
  if (!search.only(q, steps) || !search.only(k, steps)) return;
  search.add(FusedOp::Attention, steps, {q, k, v}, {search.out(attention)});
}

namespace {

// In place, and alike but for the number of heads.
bool same_rope(const GroupMembers& steps, const Step& q, const Step& k) {
  const RopeAttrs a = rope_attrs(q.attrs), b = rope_attrs(k.attrs);
  return q.op == k.op && a.head_dim == b.head_dim && a.rotary_begin == b.rotary_begin &&
         a.rotary_dim == b.rotary_dim && a.interleaved == b.interleaved && a.mscale == b.mscale &&
         a.y_head_dim == a.head_dim && b.y_head_dim == b.head_dim && a.y_begin == a.rotary_begin &&
         b.y_begin == b.rotary_begin && q.weights[0] == k.weights[0] &&
         steps.weight(q).dtype == DType::F32;
}

}  // namespace

void describe_attention(kernels::GpuForm& form, const GroupMembers& steps) {
  const Step& attention = steps.of(StepOp::Attention);
  form.attention = std::get<AttentionAttrs>(attention.attrs);
  const StepOp op = steps.find(StepOp::RopeGrid) ? StepOp::RopeGrid : StepOp::Rope;
  form.rope = rope_attrs(steps.of(op, 0).attrs);
  form.alike = steps.find(op, 1) && same_rope(steps, steps.of(op, 0), steps.of(op, 1));
  for (int i = 0; const Step* norm = steps.find(StepOp::RmsNorm, i); ++i) {
    const bool of_q = norm->outputs[0].value == attention.inputs[0].value &&
                      norm->outputs[0].offset == attention.inputs[0].offset;
    const int32_t heads = of_q ? form.attention.heads : form.attention.kv_heads;
    form.alike &= steps.is_norm_of_heads(*norm, heads);
  }
}

}  // namespace ktx::program

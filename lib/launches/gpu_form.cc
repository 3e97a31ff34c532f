#include "lib/launches/gpu_form.h"

#include <algorithm>

namespace ktx::launches {
namespace {

using kernels::GpuForm;
using kernels::GpuWeight;

// The steps of a group by op, in their order.
class Members {
 public:
  Members(const StepList& list, const FusedGroup& group) : list_(list), group_(group) {}

  const ListedStep* find(StepOp op, int number = 0) const {
    for (int32_t i : group_.steps) {
      if (list_.steps[i].op == op && number-- == 0) return &list_.steps[i];
    }
    return nullptr;
  }
  const ListedStep& of(StepOp op, int number = 0) const { return *find(op, number); }
  template <class Attrs>
  const Attrs& attrs(StepOp op, int number = 0) const {
    return std::get<Attrs>(of(op, number).attrs);
  }
  // Rows of the operand begin at multiples of `elements` floats; buffers do.
  bool aligned(const ListedOperand& operand, int64_t elements) const {
    return operand.offset % elements == 0 &&
           list_.values[operand.value].row_elements % elements == 0;
  }

 private:
  const StepList& list_;
  const FusedGroup& group_;
};

void add_weight(GpuForm& form, const ListedWeight& w) {
  form.weights.push_back({w.dtype, w.layout, w.rows, w.cols});
}

// The products of a group, and the norm before them.
void add_products(GpuForm& form, const Members& members) {
  const ListedStep* norm = members.find(StepOp::RmsNorm);
  form.norm = norm != nullptr;
  for (int i = 0; const ListedStep* product = members.find(StepOp::Matmul, i); ++i) {
    add_weight(form, product->weights[0]);
    form.bias |= product->weights.size() > 1 && product->weights[1].present();
  }
  const ListedStep& reader = norm ? *norm : members.of(StepOp::Matmul);
  form.aligned = members.aligned(reader.inputs[0], 4);
}

void add_experts(GpuForm& form, const Members& members) {
  const ListedStep& gate_up = members.of(StepOp::ExpertsGateUp);
  const auto& router = members.attrs<RouterAttrs>(StepOp::Router);
  form.experts = router.experts;
  form.top_k = router.top_k;
  add_weight(form, gate_up.weights[0]);
  add_weight(form, gate_up.weights[1]);
  add_weight(form, members.of(StepOp::ExpertsDown).weights[0]);
  form.aligned = members.aligned(gate_up.inputs[0], 4) && members.aligned(gate_up.outputs[0], 4) &&
                 gate_up.outputs[0].width / router.top_k % 4 == 0;
}

// In place, and alike but for the number of heads.
bool same_rope(const ListedStep& q, const ListedStep& k) {
  const auto &a = std::get<RopeAttrs>(q.attrs), &b = std::get<RopeAttrs>(k.attrs);
  const ListedWeight &f = q.weights[0], &g = k.weights[0];
  return a.head_dim == b.head_dim && a.rotary_begin == b.rotary_begin &&
         a.rotary_dim == b.rotary_dim && a.interleaved == b.interleaved && a.mscale == b.mscale &&
         a.y_head_dim == a.head_dim && b.y_head_dim == b.head_dim && a.y_begin == a.rotary_begin &&
         b.y_begin == b.rotary_begin && f.blob == g.blob && f.dtype == DType::F32;
}

void add_attention(GpuForm& form, const Members& members) {
  const ListedStep& attention = members.of(StepOp::Attention);
  form.attention = std::get<AttentionAttrs>(attention.attrs);
  form.rope = members.attrs<RopeAttrs>(StepOp::Rope);
  form.alike = same_rope(members.of(StepOp::Rope, 0), members.of(StepOp::Rope, 1));
  for (int i = 0; const ListedStep* norm = members.find(StepOp::RmsNorm, i); ++i) {
    const bool of_q = norm->outputs[0].value == attention.inputs[0].value &&
                      norm->outputs[0].offset == attention.inputs[0].offset;
    const int32_t heads = of_q ? form.attention.heads : form.attention.kv_heads;
    form.alike &= std::get<RmsNormAttrs>(norm->attrs).groups == heads;
  }
}

void add_latent(GpuForm& form, const Members& members) {
  const ListedStep &absorb = members.of(StepOp::MatmulHeads, 0),
                   &expand = members.of(StepOp::MatmulHeads, 1);
  form.attention = members.attrs<AttentionAttrs>(StepOp::Attention);
  form.absorb = std::get<MatmulHeadsAttrs>(absorb.attrs);
  form.expand = std::get<MatmulHeadsAttrs>(expand.attrs);
  add_weight(form, absorb.weights[0]);
  add_weight(form, expand.weights[0]);
  form.aligned = members.aligned(expand.outputs[0], 2);
}

}  // namespace

GpuForm gpu_form(const ListedStep& step) {
  GpuForm form;
  form.op = step.op;
  if (const auto* heads = std::get_if<MatmulHeadsAttrs>(&step.attrs)) {
    form.transposed = heads->transposed != 0;
  }
  if (const auto* experts = std::get_if<ExpertsAttrs>(&step.attrs)) {
    form.experts = experts->experts;
    form.top_k = experts->top_k;
  }
  const size_t matrices = std::max<size_t>(product_weights(step.op), 1);
  for (size_t i = 0; i < std::min(matrices, step.weights.size()); ++i) {
    add_weight(form, step.weights[i]);
  }
  form.bias = step.op == StepOp::Matmul && step.weights.size() > 1 && step.weights[1].present();
  return form;
}

GpuForm gpu_form(const StepList& list, const FusedGroup& group) {
  const Members members(list, group);
  GpuForm form;
  form.fused = group.op;
  switch (group.op) {
    case FusedOp::Products:
    case FusedOp::GateUp:
    case FusedOp::RouterProduct:
      add_products(form, members);
      break;
    case FusedOp::Experts:
      add_experts(form, members);
      break;
    case FusedOp::Attention:
      add_attention(form, members);
      break;
    case FusedOp::Latent:
      add_latent(form, members);
      break;
  }
  return form;
}

}  // namespace ktx::launches

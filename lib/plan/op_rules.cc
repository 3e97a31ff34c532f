#include "lib/plan/op_rules.h"

#include <algorithm>

#include "lib/formats/dtype.h"
#include "lib/formats/step_attrs.h"
#include "lib/plan/verify_records.h"

namespace ktx::plan {
namespace {

// One function per op. Operand counts, and that required ones are there, have been checked.

void check_embed(StepCheck& s) {
  const BlobRecord& table = *s.weight(0);
  s.shape("y", s.out(0), ValueType::F32, table.cols);
  s.require(table.matrices == 1 && table.rows >= s.plan.facts.vocab_size,
            "table has {} rows for {} tokens", table.rows * table.matrices,
            s.plan.facts.vocab_size);
}

void check_rms_norm(StepCheck& s) {
  const auto& a = s.attrs<RmsNormAttrs>();
  const Operand x = s.in(0);
  if (!s.in_range("groups", a.groups, 1, kMaxHeads)) return;
  s.require(std::isfinite(a.eps) && a.eps >= 0, "eps is {}", a.eps);
  s.require(x.type() == ValueType::F32, "x is not F32");
  s.shape("y", s.out(0), ValueType::F32, x.width, x.rows());
  if (!s.require(x.width % a.groups == 0, "{} groups in {} elements", a.groups, x.width)) return;
  s.vector("weight", *s.weight(0), x.width / a.groups);
}

void check_quantize(StepCheck& s) {
  const auto& a = s.attrs<QuantizeAttrs>();
  const Operand x = s.in(0);
  const Operand xq = s.out(0);
  if (!s.in_range("rows_per_token", a.rows_per_token, 1, kMaxHeads)) return;
  if (!s.in_range("stride", a.stride, 0, kMaxDim)) return;
  s.require(x.type() == ValueType::F32, "x is not F32");
  s.product_input("xq", xq, a.rows_per_token, xq.value->width, x.rows());
  const int64_t end = int64_t{a.rows_per_token - 1} * a.stride + xq.value->width;
  s.require(end <= x.width, "{} rows of {}, {} apart, of {} elements", a.rows_per_token,
            xq.value->width, a.stride, x.width);
}

void check_matmul(StepCheck& s) {
  const Operand x = s.in(0);
  const Operand y = s.out(0);
  const BlobRecord& w = *s.weight(0);
  s.in_range("accumulate", s.attrs<MatmulAttrs>().accumulate, 0, 1);
  s.shape("x", x, ValueType::F32, w.cols, x.rows());
  if (s.in(1).present()) s.product_input("xq", s.in(1), 1, w.cols, x.rows());
  s.shape("y", y, ValueType::F32, w.rows * w.matrices, x.rows());
  if (s.weight(1)) s.vector("bias", *s.weight(1), y.width);
}

void check_matmul_heads(StepCheck& s) {
  const auto& a = s.attrs<MatmulHeadsAttrs>();
  const Operand x = s.in(0);
  const Operand y = s.out(0);
  const BlobRecord& w = *s.weight(0);
  if (!s.in_range("heads", a.heads, 1, kMaxHeads) ||
      !s.in_range("transposed", a.transposed, 0, 1) ||
      !s.in_range("row_begin", a.row_begin, 0, w.rows) ||
      !s.in_range("row_count", a.row_count, 1, w.rows - a.row_begin)) {
    return;
  }
  const int64_t k = a.transposed ? a.row_count : w.cols;
  const int64_t n = a.transposed ? w.cols : a.row_count;
  if (!s.in_range("x_stride", a.x_stride, k, kMaxDim)) return;
  if (!s.in_range("y_stride", a.y_stride, n, kMaxDim)) return;
  s.matrices("w", w, a.heads, w.rows, w.cols);
  s.shape("x", x, ValueType::F32, x.width);
  s.shape("y", y, ValueType::F32, y.width);
  s.require((a.heads - 1) * int64_t{a.x_stride} + k <= x.width,
            "{} heads of {}, {} apart, of {} elements of x", a.heads, k, a.x_stride, x.width);
  s.require((a.heads - 1) * int64_t{a.y_stride} + n <= y.width,
            "{} heads of {}, {} apart, of {} elements of y", a.heads, n, a.y_stride, y.width);
  if (s.in(1).present()) s.product_input("xq", s.in(1), a.heads, k);
}

void check_rope(StepCheck& s) {
  const auto& a = s.attrs<RopeAttrs>();
  const Operand x = s.in(0);
  const Operand y = s.out(0);
  if (!s.in_range("heads", a.heads, 1, kMaxHeads) ||
      !s.in_range("head_dim", a.head_dim, 1, kMaxDim) ||
      !s.in_range("y_head_dim", a.y_head_dim, 1, kMaxDim) ||
      !s.in_range("rotary_dim", a.rotary_dim, 2, std::min(a.head_dim, a.y_head_dim)) ||
      !s.in_range("rotary_begin", a.rotary_begin, 0, a.head_dim - a.rotary_dim) ||
      !s.in_range("y_begin", a.y_begin, 0, a.y_head_dim - a.rotary_dim)) {
    return;
  }
  s.in_range("interleaved", a.interleaved, 0, 1);
  s.finite("mscale", a.mscale);
  s.require(a.rotary_dim % 2 == 0, "rotary_dim is {}, expected an even number", a.rotary_dim);
  s.shape("x", x, ValueType::F32, x.width);
  s.shape("y", y, ValueType::F32, y.width);
  const int64_t x_end = (a.heads - 1) * int64_t{a.head_dim} + a.rotary_begin + a.rotary_dim;
  const int64_t y_end = (a.heads - 1) * int64_t{a.y_head_dim} + a.y_begin + a.rotary_dim;
  s.require(x_end <= x.width, "{} heads of {} in {} elements of x", a.heads, a.head_dim, x.width);
  s.require(y_end <= y.width, "{} heads of {} in {} elements of y", a.heads, a.y_head_dim, y.width);
  s.vector("inv_freq", *s.weight(0), a.rotary_dim / 2);
  s.require(s.weight(0)->dtype == static_cast<uint16_t>(DType::F32), "inv_freq is not F32");
  s.require(
      !StepCheck::in_place(x, y) || (a.y_head_dim == a.head_dim && a.y_begin == a.rotary_begin),
      "in place with another place of the rotary part");
}

void check_kv_store(StepCheck& s) {
  const auto& a = s.attrs<KvStoreAttrs>();
  if (!s.in_range("slot", a.slot, 0, static_cast<int64_t>(s.plan.kv_slots.size()) - 1)) return;
  const KvSlotRecord& slot = s.plan.kv_slots[a.slot];
  s.shape("key", s.in(0), ValueType::F32, int64_t{slot.kv_heads} * slot.key_dim);
  if (s.require(s.in(1).present() == (slot.value_dim > 0), "value {} for a slot with values of {}",
                s.in(1).present() ? "given" : "missing", slot.value_dim) &&
      slot.value_dim > 0) {
    s.shape("value", s.in(1), ValueType::F32, int64_t{slot.kv_heads} * slot.value_dim);
  }
  s.require(!s.flow.slot_stored[a.slot], "slot {} is stored twice", a.slot);
  s.flow.slot_stored[a.slot] = true;
}

void check_attention(StepCheck& s) {
  const auto& a = s.attrs<AttentionAttrs>();
  if (!s.in_range("slot", a.slot, 0, static_cast<int64_t>(s.plan.kv_slots.size()) - 1) ||
      !s.in_range("heads", a.heads, 1, kMaxHeads) ||
      !s.in_range("value_in_key", a.value_in_key, 0, 1)) {
    return;
  }
  const KvSlotRecord& slot = s.plan.kv_slots[a.slot];
  s.finite("scale", a.scale);
  s.require(a.kv_heads == slot.kv_heads && a.key_dim == slot.key_dim,
            "{} heads of {} over a slot with {} of {}", a.kv_heads, a.key_dim, slot.kv_heads,
            slot.key_dim);
  s.require(a.heads % slot.kv_heads == 0, "{} heads share {} key heads", a.heads, slot.kv_heads);
  if (a.value_in_key) {
    s.require(slot.value_dim == 0, "values in the key over a slot with values of {}",
              slot.value_dim);
    s.in_range("value_dim", a.value_dim, 1, slot.key_dim);
  } else {
    s.require(slot.value_dim > 0 && a.value_dim == slot.value_dim,
              "values of {} over a slot with values of {}", a.value_dim, slot.value_dim);
  }
  s.shape("q", s.in(0), ValueType::F32, int64_t{a.heads} * a.key_dim);
  s.shape("y", s.out(0), ValueType::F32, int64_t{a.heads} * a.value_dim);
  s.require(s.flow.slot_stored[a.slot], "slot {} is read before it is stored", a.slot);
}

void check_swiglu(StepCheck& s) {
  const Operand gate = s.in(0);
  s.shape("gate", gate, ValueType::F32, gate.width, gate.rows());
  s.shape("up", s.in(1), ValueType::F32, gate.width, gate.rows());
  s.shape("y", s.out(0), ValueType::F32, gate.width, gate.rows());
}

void check_router(StepCheck& s) {
  const auto& a = s.attrs<RouterAttrs>();
  if (!s.in_range("experts", a.experts, 1, kMaxHeads) ||
      !s.in_range("top_k", a.top_k, 1, a.experts) ||
      !s.in_range("groups", a.groups, 1, a.experts) ||
      !s.in_range("groups_used", a.groups_used, 1, a.groups)) {
    return;
  }
  s.in_range("scoring", a.scoring, 0, 1);
  s.in_range("normalize", a.normalize, 0, 1);
  s.in_range("group_score", a.group_score, 0, 1);
  s.finite("scale", a.scale);
  const int32_t group = a.experts / a.groups;
  s.require(a.experts % a.groups == 0, "{} experts in {} groups", a.experts, a.groups);
  s.require(int64_t{group} * a.groups_used >= a.top_k, "{} experts of {} groups of {}", a.top_k,
            a.groups_used, group);
  s.shape("logits", s.in(0), ValueType::F32, a.experts);
  s.shape("ids", s.out(0), ValueType::I32, a.top_k);
  s.shape("weights", s.out(1), ValueType::F32, a.top_k);
  s.require(s.out(0).whole(), "ids are a part of a value");
  if (s.weight(0)) s.vector("bias", *s.weight(0), a.experts);
}

void check_group_experts(StepCheck& s) {
  const auto& a = s.attrs<GroupExpertsAttrs>();
  const auto* router = s.written_by<RouterAttrs>("ids", s.in(0), StepOp::Router, 0);
  if (!router) return;
  s.require(router->experts == a.experts && router->top_k == a.top_k,
            "{} of {} experts, but the router gives {} of {}", a.top_k, a.experts, router->top_k,
            router->experts);
  s.shape("ids", s.in(0), ValueType::I32, a.top_k);
  s.shape("order", s.out(0), ValueType::I32, a.top_k);
  s.shape("offsets", s.out(1), ValueType::I32, int64_t{a.experts} + 1, RowKind::Single);
  s.require(s.in(0).whole() && s.out(0).whole() && s.out(1).whole(),
            "ids, order or offsets are a part of a value");
}

// The operands that experts_gate_up and experts_down share.
bool check_expert_order(StepCheck& s, const ExpertsAttrs& a) {
  uint32_t order_step = 0;
  uint32_t offsets_step = 0;
  const auto* order =
      s.written_by<GroupExpertsAttrs>("order", s.in(2), StepOp::GroupExperts, 0, &order_step);
  const auto* offsets =
      s.written_by<GroupExpertsAttrs>("offsets", s.in(3), StepOp::GroupExperts, 1, &offsets_step);
  if (!order || !offsets) return false;
  if (!s.require(order_step == offsets_step, "order and offsets come from different steps") ||
      !s.require(order->experts == a.experts && order->top_k == a.top_k,
                 "{} of {} experts, grouped as {} of {}", a.top_k, a.experts, order->top_k,
                 order->experts)) {
    return false;
  }
  s.shape("order", s.in(2), ValueType::I32, a.top_k);
  s.shape("offsets", s.in(3), ValueType::I32, int64_t{a.experts} + 1, RowKind::Single);
  return s.ok();
}

void check_experts_gate_up(StepCheck& s) {
  const auto& a = s.attrs<ExpertsAttrs>();
  if (!check_expert_order(s, a)) return;
  const Operand x = s.in(0);
  const BlobRecord& gate = *s.weight(0);
  s.require(a.accumulate == 0, "accumulate is {}, expected 0", a.accumulate);
  s.matrices("gate", gate, a.experts, gate.rows, x.width);
  s.matrices("up", *s.weight(1), a.experts, gate.rows, x.width);
  s.shape("x", x, ValueType::F32, gate.cols);
  if (s.in(1).present()) s.product_input("xq", s.in(1), 1, gate.cols);
  s.shape("h", s.out(0), ValueType::F32, a.top_k * gate.rows);
}

void check_experts_down(StepCheck& s) {
  const auto& a = s.attrs<ExpertsAttrs>();
  if (!check_expert_order(s, a)) return;
  const BlobRecord& down = *s.weight(0);
  s.in_range("accumulate", a.accumulate, 0, 1);
  s.matrices("down", down, a.experts, down.rows, down.cols);
  s.shape("h", s.in(0), ValueType::F32, a.top_k * down.cols);
  if (s.in(1).present()) s.product_input("hq", s.in(1), a.top_k, down.cols);
  s.shape("weights", s.in(4), ValueType::F32, a.top_k);
  s.shape("y", s.out(0), ValueType::F32, down.rows);
}

void check_add(StepCheck& s) {
  const Operand a = s.in(0);
  s.shape("a", a, ValueType::F32, a.width, a.rows());
  s.shape("b", s.in(1), ValueType::F32, a.width, a.rows());
  s.shape("y", s.out(0), ValueType::F32, a.width, a.rows());
}

void check_sigmoid_scale(StepCheck& s) {
  const Operand x = s.in(0);
  s.shape("x", x, ValueType::F32, x.width, x.rows());
  s.shape("gate", s.in(1), ValueType::F32, 1, x.rows());
  s.shape("y", s.out(0), ValueType::F32, x.width, x.rows());
}

void check_gather_rows(StepCheck& s) {
  const Operand x = s.in(0);
  s.shape("x", x, ValueType::F32, x.width);
  s.shape("y", s.out(0), ValueType::F32, x.width, RowKind::Output);
}

void check_transfer(StepCheck& s) {
  const Operand x = s.in(0);
  const Operand y = s.out(0);
  s.require(x.whole() && y.whole(), "only whole values are transferred");
  s.shape("y", y, x.type(), x.width, x.rows());
  s.require(x.value->rows_per_row == y.value->rows_per_row && x.value->width == y.value->width,
            "y has another shape than x");
}

constexpr OpRule kRules[] = {
    {StepOp::Embed, check_embed, InPlace::No},
    {StepOp::RmsNorm, check_rms_norm, InPlace::FirstInput},
    {StepOp::Quantize, check_quantize, InPlace::No},
    {StepOp::Matmul, check_matmul, InPlace::No},
    {StepOp::MatmulHeads, check_matmul_heads, InPlace::No},
    {StepOp::Rope, check_rope, InPlace::FirstInput},
    {StepOp::KvStore, check_kv_store, InPlace::No},
    {StepOp::Attention, check_attention, InPlace::No},
    {StepOp::Swiglu, check_swiglu, InPlace::AnyInput},
    {StepOp::Router, check_router, InPlace::No},
    {StepOp::GroupExperts, check_group_experts, InPlace::No},
    {StepOp::ExpertsGateUp, check_experts_gate_up, InPlace::No},
    {StepOp::ExpertsDown, check_experts_down, InPlace::No},
    {StepOp::Add, check_add, InPlace::FirstInput},
    {StepOp::SigmoidScale, check_sigmoid_scale, InPlace::FirstInput},
    {StepOp::GatherRows, check_gather_rows, InPlace::No},
    {StepOp::Transfer, check_transfer, InPlace::No},
};

constexpr bool rules_match_ops() {
  uint32_t i = 0;
  bool match = true;
#define KTX_STEP_OP(id, name, attrs, in, out, weights, sentence)        \
  match = match && i < std::size(kRules) && kRules[i].op == StepOp::id; \
  ++i;
#include "lib/formats/step_ops.def"
#undef KTX_STEP_OP
  return match && i == std::size(kRules);
}
static_assert(rules_match_ops(), "one rule per row of step_ops.def, in its order");

}  // namespace

const OpRule* find_op_rule(uint32_t op) {
  return op < std::size(kRules) ? &kRules[op] : nullptr;
}

}  // namespace ktx::plan

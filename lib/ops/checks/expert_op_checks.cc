// Routers and experts.
#include "lib/ops/checks/op_checks.h"

#include "lib/formats/shape_limits.h"

namespace ktx::op_checks {
namespace {

// The operands that experts_gate_up and experts_down share.
bool check_expert_order(OpCheck& s, const ExpertsAttrs& a) {
  const Producer* order = s.written_by("order", s.in(2), StepOp::GroupExperts, 0);
  const Producer* offsets = s.written_by("offsets", s.in(3), StepOp::GroupExperts, 1);
  if (!order || !offsets) return false;
  const auto& grouped = std::get<GroupExpertsAttrs>(order->attrs);
  if (!s.require(order->step == offsets->step, "order and offsets come from different steps") ||
      !s.require(grouped.experts == a.experts && grouped.top_k == a.top_k,
                 "{} of {} experts, grouped as {} of {}", a.top_k, a.experts, grouped.top_k,
                 grouped.experts)) {
    return false;
  }
  s.shape("order", s.in(2), ValueType::I32, a.top_k);
  s.shape("offsets", s.in(3), ValueType::I32, int64_t{a.experts} + 1, RowKind::Single);
  return s.ok();
}

// A vector for each expert, in one row or in one row each.
void check_expert_bias(OpCheck& s, const OpWeight& bias, int64_t experts, int64_t width) {
  s.require(bias.matrices == 1 && bias.rows == experts && bias.cols == width,
            "bias is {} x [{}, {}], expected [{}, {}]", bias.matrices, bias.cols, bias.rows, width,
            experts);
}

}  // namespace

void check_router(OpCheck& s) {
  const auto& a = s.attrs<RouterAttrs>();
  if (!s.in_range("experts", a.experts, 1, kMaxHeads) ||
      !s.in_range("top_k", a.top_k, 1, a.experts) ||
      !s.in_range("groups", a.groups, 1, a.experts) ||
      !s.in_range("groups_used", a.groups_used, 1, a.groups)) {
    return;
  }
  s.in_range("scoring", a.scoring, 0, kScorings - 1);
  s.in_range("normalize", a.normalize, 0, 1);
  s.in_range("group_score", a.group_score, 0, 1);
  const int32_t group = a.experts / a.groups;
  s.require(a.experts % a.groups == 0, "{} experts in {} groups", a.experts, a.groups);
  s.require(int64_t{group} * a.groups_used >= a.top_k, "{} experts of {} groups of {}", a.top_k,
            a.groups_used, group);
  s.shape("logits", s.in(0), ValueType::F32, a.experts);
  s.shape("ids", s.out(0), ValueType::I32, a.top_k);
  s.shape("weights", s.out(1), ValueType::F32, a.top_k);
  s.require(s.out(0).whole(), "ids are a part of a value");
  if (s.weight(0).present()) s.vector("bias", s.weight(0), a.experts);
  if (s.weight(1).present()) s.vector("factors", s.weight(1), a.experts);
  if (a.scoring == static_cast<int32_t>(Scoring::SparseMixer)) {
    s.require(a.normalize == 0 && a.groups == 1 && !s.weight(0).present() && !s.weight(2).present(),
              "a sparse mixer with normalised weights, groups, a bias or a table");
  }
  if (!s.weight(2).present()) return;
  const OpWeight& table = s.weight(2);
  s.require(table.dtype == DType::I32 && table.matrices == 1 && table.cols == a.top_k &&
                table.rows >= s.flow.vocab_size,
            "table is {} of {}, expected I32 [{}, {}]",
            shape_text(table.cols, table.rows, table.matrices), name(table.dtype), a.top_k,
            s.flow.vocab_size);
  s.require(!s.weight(0).present() && a.groups == 1, "a table and a bias or groups");
}

void check_group_experts(OpCheck& s) {
  const auto& a = s.attrs<GroupExpertsAttrs>();
  const Producer* writer = s.written_by("ids", s.in(0), StepOp::Router, 0);
  if (!writer) return;
  const auto& router = std::get<RouterAttrs>(writer->attrs);
  const bool some = s.weight(0).present();  // not all of the router's experts
  s.require((some ? router.experts >= a.experts : router.experts == a.experts) &&
                router.top_k == a.top_k && a.experts > 0,
            "{} of {} experts, but the router gives {} of {}", a.top_k, a.experts, router.top_k,
            router.experts);
  if (a.ranks == 0) {
    s.require(a.first_rank == 0, "choices from {} on, but none of them", a.first_rank);
  } else if (s.in_range("first_rank", a.first_rank, 0, a.top_k - 1)) {
    s.in_range("ranks", a.ranks, 1, a.top_k - a.first_rank);
  }
  if (s.in_range("guests", a.guests, 0, 1) && a.guests != 0) {
    s.require(some && a.ranks == 0, "guests without places, or of some of a token's choices");
  }
  if (some) {
    s.vector("places", s.weight(0), router.experts);
    s.require(s.weight(0).dtype == DType::F32, "places is not F32");
  }
  s.shape("ids", s.in(0), ValueType::I32, a.top_k);
  s.shape("order", s.out(0), ValueType::I32, a.top_k);
  s.shape("offsets", s.out(1), ValueType::I32, int64_t{a.experts} + 1, RowKind::Single);
  s.require(s.in(0).whole() && s.out(0).whole() && s.out(1).whole(),
            "ids, order or offsets are a part of a value");
}

void check_experts_gate_up(OpCheck& s) {
  const auto& a = s.attrs<ExpertsAttrs>();
  if (!check_expert_order(s, a)) return;
  const OpOperand& x = s.in(0);
  const OpWeight& gate = s.weight(0);
  s.require(a.accumulate == 0, "accumulate is {}, expected 0", a.accumulate);
  check_activation(s, a.glu());
  for (size_t i = 2; i < 4; ++i) {
    if (s.weight(i).present()) check_expert_bias(s, s.weight(i), a.experts, gate.rows);
    if (s.weight(i + 2).present()) s.vector("factors", s.weight(i + 2), a.experts);
  }
  s.matrices("gate", gate, a.experts, gate.rows, x.width);
  s.matrices("up", s.weight(1), a.experts, gate.rows, x.width);
  s.shape("x", x, ValueType::F32, gate.cols);
  if (s.in(1).present()) s.product_input("xq", s.in(1), 1, gate.cols);
  s.rows_of("h", s.out(0), ValueType::F32, a.top_k, gate.rows);
}

void check_experts_down(OpCheck& s) {
  const auto& a = s.attrs<ExpertsAttrs>();
  if (!check_expert_order(s, a)) return;
  const OpWeight& down = s.weight(0);
  s.in_range("accumulate", a.accumulate, 0, 1);
  s.require(a.activation == 0 && a.limit == 0, "an activation of down");
  if (s.weight(1).present()) check_expert_bias(s, s.weight(1), a.experts, down.rows);
  s.matrices("down", down, a.experts, down.rows, down.cols);
  s.rows_of("h", s.in(0), ValueType::F32, a.top_k, down.cols);
  if (s.in(1).present()) s.product_input("hq", s.in(1), a.top_k, down.cols);
  s.shape("weights", s.in(4), ValueType::F32, a.top_k);
  if (!s.in_range("by_pair", a.by_pair, 0, 1)) return;
  if (a.by_pair == 0) {
    s.shape("y", s.out(0), ValueType::F32, down.rows);
    return;
  }
  s.require(a.accumulate == 0, "rows of pairs are not added to what y has");
  s.rows_of("y", s.out(0), ValueType::F32, a.top_k, down.rows);
}

void check_sum_experts(OpCheck& s) {
  const auto& a = s.attrs<SumExpertsAttrs>();
  s.in_range("accumulate", a.accumulate, 0, 1);
  const Producer* router = s.written_by("ids", s.in(1), StepOp::Router, 0);
  const Producer* pairs = s.written_by("pairs", s.in(0), StepOp::ExpertsDown, 0);
  if (!router || !pairs) return;
  s.require(std::get<RouterAttrs>(router->attrs).top_k == a.top_k, "top_k is {}, the router's {}",
            a.top_k, std::get<RouterAttrs>(router->attrs).top_k);
  s.shape("ids", s.in(1), ValueType::I32, a.top_k);
  s.require(s.in(1).whole(), "ids is a part of a value");
  s.rows_of("pairs", s.in(0), ValueType::F32, a.top_k, s.out(0).width);
  s.shape("y", s.out(0), ValueType::F32, s.out(0).width);
}

}  // namespace ktx::op_checks

// Values that cross between devices.
#include "lib/ops/checks/op_checks.h"

namespace ktx::op_checks {

void check_transfer(OpCheck& s) {
  const OpOperand& x = s.in(0);
  const OpOperand& y = s.out(0);
  s.require(x.whole() && y.whole(), "only whole values are transferred");
  s.shape("y", y, x.type, x.width, x.rows);
  s.require(x.rows_per_row == y.rows_per_row && x.value_width == y.value_width,
            "y has another shape than x");
  if (!s.in(1).present() && !s.in(2).present()) return;
  if (!s.require(s.in(1).present() && s.in(2).present(), "order without offsets, or these alone")) {
    return;
  }
  const Producer* order = s.written_by("order", s.in(1), StepOp::GroupExperts, 0);
  const Producer* offsets = s.written_by("offsets", s.in(2), StepOp::GroupExperts, 1);
  if (!order || !offsets) return;
  const auto& grouped = std::get<GroupExpertsAttrs>(order->attrs);
  s.require(order->step == offsets->step, "order and offsets come from different steps");
  s.shape("order", s.in(1), ValueType::I32, grouped.top_k);
  s.shape("offsets", s.in(2), ValueType::I32, int64_t{grouped.experts} + 1, RowKind::Single);
  s.require(x.type == ValueType::F32 && x.rows == RowKind::Token &&
                (x.rows_per_row == 1 || x.rows_per_row == grouped.top_k),
            "x has no row for each token, or for each of its {} pairs", grouped.top_k);
}

void check_all_reduce(OpCheck& s) {
  s.in_range("accumulate", s.attrs<AllReduceAttrs>().accumulate, 0, 1);
  const OpOperand& y = s.out(0);
  for (size_t i = 0; i < s.inputs.size(); ++i) {
    if (!s.in(i).present()) continue;
    s.shape("a part", s.in(i), ValueType::F32, y.width, y.rows);
    s.require(s.in(i).whole(), "a part of a value");
  }
  s.require(y.whole(), "y is a part of a value");
  s.shape("y", y, ValueType::F32, y.width, y.rows);
}

}  // namespace ktx::op_checks

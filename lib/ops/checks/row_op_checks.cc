// Embeddings, norms and row ops.
#include "lib/ops/checks/op_checks.h"

#include <optional>

#include "lib/formats/shape_limits.h"

namespace ktx::op_checks {
namespace {

// Checks a norm over equal groups of a row. Returns the elements of its vectors, or none where a
// rule is broken on which they depend.
template <class Attrs>
std::optional<int64_t> check_norm(OpCheck& s) {
  const auto& a = s.attrs<Attrs>();
  const OpOperand& x = s.in(0);
  if (!s.in_range("groups", a.groups, 1, kMaxHeads)) return std::nullopt;
  s.require(a.eps >= 0, "eps is {}", a.eps);
  s.require(x.type == ValueType::F32, "x is not F32");
  s.shape("y", s.out(0), ValueType::F32, x.width, x.rows);
  if (!s.require(x.width % a.groups == 0, "{} groups in {} elements", a.groups, x.width)) {
    return std::nullopt;
  }
  const int64_t part = x.width / a.groups;
  if (s.weight(0).rows > 1) {
    s.matrices("weight", s.weight(0), 1, a.groups, part);
  } else {
    s.vector("weight", s.weight(0), part);
  }
  return part;
}

}  // namespace

void check_embed(OpCheck& s) {
  const OpWeight& table = s.weight(0);
  s.require(table.dtype != DType::I32, "table has integer elements");
  s.shape("y", s.out(0), ValueType::F32, table.cols);
  s.require(table.matrices == 1 && table.rows >= s.flow.vocab_size,
            "table has {} rows for {} tokens", table.rows * table.matrices, s.flow.vocab_size);
}

void check_given_hidden(OpCheck& s) {
  const OpOperand& y = s.out(0);
  s.shape("y", y, ValueType::F32, y.width);
  s.require(y.offset == 0 && y.width == y.value_width && y.rows_per_row == 1,
            "y is not a whole row");
}

// That positions stay inside of the table is the runtime's to see to.
void check_embed_row(OpCheck& s) {
  const OpWeight& table = s.weight(0);
  s.require(table.dtype != DType::I32, "table has integer elements");
  s.shape("y", s.out(0), ValueType::F32, table.cols);
  s.require(table.matrices == 1, "table is {} matrices, expected 1", table.matrices);
  s.in_range("row", s.attrs<EmbedRowAttrs>().row, -1, table.rows - 1);
}

void check_embed_grid(OpCheck& s) {
  const OpWeight& table = s.weight(0);
  s.require(table.dtype != DType::I32, "table has integer elements");
  s.shape("y", s.out(0), ValueType::F32, table.cols);
  s.require(table.matrices == 1, "table is {} matrices, expected 1", table.matrices);
  const int64_t side = s.attrs<EmbedGridAttrs>().side;
  if (!s.in_range("side", side, 1, kMaxImageSide)) return;
  s.require(table.rows == side * side, "table has {} rows, expected {}", table.rows, side * side);
}

void check_rms_norm(OpCheck& s) {
  check_norm<RmsNormAttrs>(s);
}

void check_layer_norm(OpCheck& s) {
  const auto part = check_norm<LayerNormAttrs>(s);
  if (part && s.weight(1).present()) s.vector("bias", s.weight(1), *part);
}

// Row-wise ops whose operands are all alike.
void check_same_rows(OpCheck& s) {
  const OpOperand& x = s.in(0);
  for (size_t i = 0; i < s.inputs.size(); ++i) {
    s.shape(operand_name(s.op.inputs, i), s.in(i), ValueType::F32, x.width, x.rows);
  }
  for (size_t o = 0; o < s.outputs.size(); ++o) {
    s.shape(operand_name(s.op.outputs, o), s.out(o), ValueType::F32, x.width, x.rows);
  }
}

// A gated linear unit's attributes.
void check_activation(OpCheck& s, const GluAttrs& a) {
  s.in_range("activation", a.activation, 0, kActivations - 1);
  s.require(a.limit >= 0, "limit is {}", a.limit);
  const bool soft = a.activation == static_cast<int32_t>(Activation::Situ);
  s.require(a.up_limit >= 0 && (soft || a.up_limit == 0), "up_limit is {}", a.up_limit);
}

void check_glu(OpCheck& s) {
  check_activation(s, s.attrs<GluAttrs>());
  check_same_rows(s);
}

void check_activate(OpCheck& s) {
  const auto& a = s.attrs<ActivateAttrs>();
  s.in_range("function", a.function, 0, kUnitFunctions - 1);
  s.require(a.function != static_cast<int32_t>(UnitFunction::Clamp) || a.limit > 0, "limit is {}",
            a.limit);
  check_same_rows(s);
}

void check_softcap(OpCheck& s) {
  s.require(s.attrs<SoftcapAttrs>().cap > 0, "cap is {}", s.attrs<SoftcapAttrs>().cap);
  check_same_rows(s);
}

void check_position_scale(OpCheck& s) {
  const auto& a = s.attrs<PositionScaleAttrs>();
  s.require(a.growth >= 0, "growth is {}", a.growth);
  s.in_range("context", a.context, 1, INT32_MAX);
  s.shape("x", s.in(0), ValueType::F32, s.in(0).width);
  s.shape("y", s.out(0), ValueType::F32, s.in(0).width);
}

void check_sigmoid_scale(OpCheck& s) {
  const OpOperand& x = s.in(0);
  s.shape("x", x, ValueType::F32, x.width, x.rows);
  s.shape("gate", s.in(1), ValueType::F32, 1, x.rows);
  s.shape("y", s.out(0), ValueType::F32, x.width, x.rows);
}

void check_head_scale(OpCheck& s) {
  const auto& a = s.attrs<HeadScaleAttrs>();
  const OpOperand& x = s.in(0);
  s.in_range("function", a.function, 0, kHeadGates - 1);
  if (!s.require(a.heads > 0 && x.width % a.heads == 0, "{} heads do not divide a row of {}",
                 a.heads, x.width)) {
    return;
  }
  s.shape("x", x, ValueType::F32, x.width, x.rows);
  s.shape("gate", s.in(1), ValueType::F32, a.heads, x.rows);
  s.shape("y", s.out(0), ValueType::F32, x.width, x.rows);
  s.require(x.whole() && s.in(1).whole() && s.out(0).whole(), "an operand is a part of a value");
}

void check_gather_rows(OpCheck& s) {
  const OpOperand& x = s.in(0);
  s.shape("x", x, ValueType::F32, x.width);
  s.shape("y", s.out(0), ValueType::F32, x.width, RowKind::Output);
}

// That the square stays inside of the pass is the runtime's to see to.
void check_pool_rows(OpCheck& s) {
  const auto& a = s.attrs<PoolRowsAttrs>();
  const OpOperand& x = s.in(0);
  s.in_range("unfold", a.unfold, 0, 2);
  s.shape("x", x, ValueType::F32, x.width);
  if (!s.in_range("side", a.side, 1, kMaxImageSide)) return;
  s.shape("y", s.out(0), ValueType::F32, x.width * (a.unfold ? a.patches() : 1), RowKind::Output);
}

void check_given_rows(OpCheck& s) {
  const OpOperand& x = s.in(0);
  s.shape("x", x, ValueType::F32, x.width);
  s.shape("y", s.out(0), ValueType::F32, x.width);
  s.in_range("part", s.attrs<GivenRowsAttrs>().part, 0, kMaxImageParts - 1);
  s.require(x.whole() && s.out(0).whole(), "an operand is a part of a value");
}

void check_match_rms(OpCheck& s) {
  const OpOperand& x = s.in(0);
  s.require(s.attrs<MatchRmsAttrs>().eps >= 0, "eps is {}", s.attrs<MatchRmsAttrs>().eps);
  s.shape("x", x, ValueType::F32, x.width, x.rows);
  s.shape("like", s.in(1), ValueType::F32, s.in(1).width, x.rows);
  s.shape("y", s.out(0), ValueType::F32, x.width, x.rows);
}

void check_gaussian_topk(OpCheck& s) {
  const OpOperand& x = s.in(0);
  s.shape("x", x, ValueType::F32, x.width, x.rows);
  s.shape("y", s.out(0), ValueType::F32, x.width, x.rows);
}

}  // namespace ktx::op_checks

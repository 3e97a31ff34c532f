// Products of dense activations.
#include "lib/ops/checks/op_checks.h"

#include "lib/formats/shape_limits.h"

namespace ktx::op_checks {

void check_quantize(OpCheck& s) {
  const auto& a = s.attrs<QuantizeAttrs>();
  const OpOperand& x = s.in(0);
  const OpOperand& xq = s.out(0);
  if (!s.in_range("rows_per_token", a.rows_per_token, 1, kMaxHeads)) return;
  if (!s.in_range("stride", a.stride, 1, kMaxDim)) return;
  s.require(x.type == ValueType::F32, "x is not F32");
  s.product_input("xq", xq, a.rows_per_token, xq.value_width, x.rows);
  const int64_t end = int64_t{a.rows_per_token - 1} * a.stride + xq.value_width;
  s.require(end <= x.width, "{} rows of {}, {} apart, of {} elements", a.rows_per_token,
            xq.value_width, a.stride, x.width);
}

void check_matmul(OpCheck& s) {
  const OpOperand& x = s.in(0);
  const OpOperand& y = s.out(0);
  const OpWeight& w = s.weight(0);
  s.in_range("accumulate", s.attrs<MatmulAttrs>().accumulate, 0, 1);
  s.shape("x", x, ValueType::F32, w.cols, x.rows);
  if (s.in(1).present()) s.product_input("xq", s.in(1), 1, w.cols, x.rows);
  s.shape("y", y, ValueType::F32, w.rows, x.rows);
  s.require(w.matrices == 1, "w is {} matrices, expected 1", w.matrices);
  if (s.weight(1).present()) s.vector("bias", s.weight(1), y.width);
}

void check_matmul_heads(OpCheck& s) {
  const auto& a = s.attrs<MatmulHeadsAttrs>();
  const OpOperand& x = s.in(0);
  const OpOperand& y = s.out(0);
  const OpWeight& w = s.weight(0);
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
  s.shape("x", x, ValueType::F32, x.width, x.rows);
  s.shape("y", y, ValueType::F32, y.width, x.rows);
  s.require((a.heads - 1) * int64_t{a.x_stride} + k <= x.width,
            "{} heads of {}, {} apart, of {} elements of x", a.heads, k, a.x_stride, x.width);
  s.require((a.heads - 1) * int64_t{a.y_stride} + n <= y.width,
            "{} heads of {}, {} apart, of {} elements of y", a.heads, n, a.y_stride, y.width);
  if (s.in(1).present()) s.product_input("xq", s.in(1), a.heads, k);
}

}  // namespace ktx::op_checks

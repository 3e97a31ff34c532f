// The scalar kernel of each row op.
#include <algorithm>

#include "kernels/rows/row_ops.h"

namespace ktx::kernels {

template <StepOp op>
void rows_scalar(const RowsArgs& a);

template <StepOp op>
void rows_scalar(const RowsArgs& a) {
  const AttrsOf<op>& attrs = *std::get_if<AttrsOf<op>>(&a.attrs);
  for (int64_t t = a.token_begin; t < a.token_end; ++t) {
    float* y = a.y + t * a.y_stride;
    const int64_t row = input_row<op>(a, t);
    if (row < 0) {
      std::fill_n(y, a.width, 0.0f);
      continue;
    }
    const RowInputs x = inputs_at(a, row);
    const RowOp<op> f(x, attrs);
    for (int64_t i = 0; i < a.width; ++i) {
      if constexpr (kElementInputs<op> == 2) {
        y[i] = f(x.in[0][i], x.in[1][i]);
      } else {
        y[i] = f(x.in[0][i]);
      }
    }
  }
}

#define KTX_ROW_OP(op, family, arithmetic, sentence) \
  template void rows_scalar<StepOp::op>(const RowsArgs&);
#include "kernels/rows/row_ops.def"
#undef KTX_ROW_OP

}  // namespace ktx::kernels

// The definition: one loop a formula.
#include "kernels/state_space/state_space_token.h"

namespace ktx::kernels {

void state_space_scalar(const StateSpaceArgs& a);

void state_space_scalar(const StateSpaceArgs& a) {
  const int64_t dim = a.attrs.head_dim, rows = a.attrs.state_dim;
  const int64_t first = a.head * rows * dim;
  float* const matrix = a.state_out + first;
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t c = a.column_begin; c < a.column_end; ++c) {
      matrix[i * dim + c] = a.state_in != nullptr ? a.state_in[first + i * dim + c] : 0;
    }
  }
  for (int64_t t = 0; t < a.tokens; ++t) {
    const StateSpaceToken token = state_space_token(a, t);
    for (int64_t c = a.column_begin; c < a.column_end; ++c) {
      const float change = token.step * token.value[c];
      float read = 0;
      for (int64_t i = 0; i < rows; ++i) {
        float& m = matrix[i * dim + c];
        m = m * token.kept + token.in[i] * change;
        read += token.out[i] * m;
      }
      a.y[t * a.y_stride + a.head * dim + c] = read + a.skip[a.head] * token.value[c];
    }
  }
}

}  // namespace ktx::kernels

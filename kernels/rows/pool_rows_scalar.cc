// Means of squares of rows. A tower runs it once an image: the compiler's own loops will do.
#include <algorithm>

#include "kernels/rows/pool_rows.h"

namespace ktx::kernels {

void pool_rows_scalar(const PoolRowsArgs& a);

void pool_rows_scalar(const PoolRowsArgs& a) {
  const auto count = static_cast<float>(a.attrs.side * a.attrs.side);
  for (int64_t t = a.token_begin; t < a.token_end; ++t) {
    float* y = a.y + t * a.y_stride;
    std::fill_n(y, a.width, 0.0F);
    for (int64_t line = 0; line < a.attrs.side; ++line) {
      for (int64_t column = 0; column < a.attrs.side; ++column) {
        const float* x = a.x + (a.first[t] + line * a.attrs.columns + column) * a.x_stride;
        for (int64_t i = 0; i < a.width; ++i) y[i] += x[i];
      }
    }
    for (int64_t i = 0; i < a.width; ++i) y[i] /= count;
  }
}

}  // namespace ktx::kernels

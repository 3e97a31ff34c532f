// Squares of rows. A tower runs it once an image: the compiler's own loops will do.
#include <algorithm>

#include "kernels/rows/pool_rows.h"

namespace ktx::kernels {

void pool_rows_scalar(const PoolRowsArgs& a);

namespace {

// `visit(row, number)` for each row of the square that begins at row `first`.
template <class F>
void for_square(const PoolRowsArgs& a, int64_t first, F&& visit) {
  for (int64_t number = 0; number < a.attrs.patches(); ++number) {
    const int64_t line = number / a.attrs.side, column = number % a.attrs.side;
    visit(a.x + (first + line * a.columns + column) * a.x_stride, number);
  }
}

void average(const PoolRowsArgs& a, int64_t first, float* y) {
  std::fill_n(y, a.width, 0.0F);
  for_square(a, first, [&](const float* x, int64_t) {
    for (int64_t i = 0; i < a.width; ++i) y[i] += x[i];
  });
  const auto count = static_cast<float>(a.attrs.patches());
  for (int64_t i = 0; i < a.width; ++i) y[i] /= count;
}

void by_channels(const PoolRowsArgs& a, int64_t first, float* y) {
  for_square(a, first, [&](const float* x, int64_t number) {
    for (int64_t i = 0; i < a.width; ++i) y[i * a.attrs.patches() + number] = x[i];
  });
}

void by_patches(const PoolRowsArgs& a, int64_t first, float* y) {
  for_square(a, first, [&](const float* x, int64_t number) {
    std::copy_n(x, a.width, y + number * a.width);
  });
}

}  // namespace

void pool_rows_scalar(const PoolRowsArgs& a) {
  constexpr void (*kForms[])(const PoolRowsArgs&, int64_t, float*) = {average, by_channels,
                                                                      by_patches};  // enum Unfold
  for (int64_t t = a.token_begin; t < a.token_end; ++t) {
    kForms[a.attrs.unfold](a, a.first[t], a.y + t * a.y_stride);
  }
}

}  // namespace ktx::kernels

// Positions by place. A tower runs it once an image: the compiler's own loops will do.
#include <algorithm>
#include <array>
#include <cmath>

#include "kernels/embed/embed_grid.h"

namespace ktx::kernels {

void embed_grid_scalar(const EmbedGridArgs& a);

namespace {

// The two rows, or columns, of the table around place `at` of `count`, and their weights.
struct Around {
  std::array<int64_t, 2> at;
  std::array<float, 2> weight;
};

Around around(int64_t at, int64_t count, int64_t side) {
  const float place = static_cast<float>(at) * static_cast<float>(side - 1) /
                      static_cast<float>(std::max<int64_t>(count - 1, 1));
  const float below = std::floor(place);
  const auto first = std::min(static_cast<int64_t>(below), side - 1);
  const float rest = place - below;
  return {{first, std::min(first + 1, side - 1)}, {1 - rest, rest}};
}

}  // namespace

void embed_grid_scalar(const EmbedGridArgs& a) {
  for (int64_t t = a.token_begin; t < a.token_end; ++t) {
    const Around line = around(a.line[t], a.lines, a.side);
    const Around column = around(a.column[t], a.columns, a.side);
    float* const y = a.y + t * a.y_stride;
    std::fill_n(y, a.table.cols, 0.0F);
    for (const size_t i : {0, 1}) {
      for (const size_t j : {0, 1}) {
        const int64_t row = line.at[i] * a.side + column.at[j];
        const float weight = line.weight[i] * column.weight[j];
        dequantize_row(a.table.dtype, a.table.data + row * a.table.row_bytes, a.table.cols,
                       a.scratch);
        for (int64_t e = 0; e < a.table.cols; ++e) y[e] += weight * a.scratch[e];
      }
    }
  }
}

}  // namespace ktx::kernels

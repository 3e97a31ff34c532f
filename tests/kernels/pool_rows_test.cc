// Means of squares of rows, against double.
#include "kernels/rows/pool_rows.h"

#include "tests/kernels/kernel_cases.h"

namespace ktx::kernels {
namespace {

TEST(PoolRows, AreMeansOfSquares) {
  Random random(7);
  const PoolRowsFn run = *find_pool_rows("pool_rows", Isa::Scalar);
  for (const auto& [columns, side, width] :
       {std::tuple{6, 2, 5}, {6, 3, 1}, {4, 1, 33}, {4, 4, 7}}) {
    const std::vector<float> x = random.normals(int64_t{columns} * columns * width, 3);
    std::vector<int32_t> first;
    for (int line = 0; line < columns; line += side) {
      for (int column = 0; column < columns; column += side)
        first.push_back(line * columns + column);
    }
    std::vector<float> y(first.size() * static_cast<size_t>(width) + 1, -7);
    PoolRowsArgs a;
    a.x = x.data(), a.x_stride = width;
    a.y = y.data(), a.y_stride = a.width = width;
    a.first = first.data();
    a.attrs = {columns, side};
    a.token_end = std::ssize(first);
    run(a);
    EXPECT_EQ(y.back(), -7);
    for (size_t row = 0; row < first.size(); ++row) {
      for (int i = 0; i < width; ++i) {
        double sum = 0;
        for (int dy = 0; dy < side; ++dy) {
          for (int dx = 0; dx < side; ++dx) {
            sum += x[static_cast<size_t>((first[row] + dy * columns + dx) * width + i)];
          }
        }
        EXPECT_NEAR(y[row * static_cast<size_t>(width) + static_cast<size_t>(i)],
                    sum / (side * side), 1e-5);
      }
    }
  }
}

}  // namespace
}  // namespace ktx::kernels

// Squares of rows of towers.
#include "kernels/rows/pool_rows.h"

#include <functional>
#include <span>

#include "tests/kernels/kernel_cases.h"

namespace ktx::kernels {
namespace {

struct Grid {
  int columns, lines, side, width;
};
const Grid kGrids[] = {{6, 6, 2, 5}, {6, 3, 3, 1}, {4, 2, 1, 33}, {4, 8, 4, 7}};

// `compare` sees each row y, made of the square that begins at row `first` of x.
void for_rows(int32_t unfold,
              const std::function<void(const Grid&, std::span<const float> x, int64_t first,
                                       std::span<const float> y)>& compare) {
  Random random(7);
  const PoolRowsFn run = *find_pool_rows("pool_rows", Isa::Scalar);
  for (const Grid& g : kGrids) {
    const std::vector<float> x = random.normals(int64_t{g.columns} * g.lines * g.width, 3);
    std::vector<int32_t> first;
    for (int line = 0; line < g.lines; line += g.side) {
      for (int column = 0; column < g.columns; column += g.side)
        first.push_back(line * g.columns + column);
    }
    const int64_t width = int64_t{g.width} * (unfold ? g.side * g.side : 1);
    std::vector<float> y(first.size() * static_cast<size_t>(width) + 1, -7);
    PoolRowsArgs a;
    a.x = x.data(), a.x_stride = a.width = g.width;
    a.y = y.data(), a.y_stride = width;
    a.first = first.data(), a.columns = g.columns;
    a.attrs = {g.side, unfold};
    a.token_end = std::ssize(first);
    run(a);
    EXPECT_EQ(y.back(), -7);
    for (size_t row = 0; row < first.size(); ++row) {
      compare(g, x, first[row], std::span(y).subspan(row * static_cast<size_t>(width), width));
    }
  }
}

float element(const Grid& g, std::span<const float> x, int64_t first, int dy, int dx, int i) {
  return x[static_cast<size_t>((first + dy * g.columns + dx) * g.width + i)];
}

TEST(PoolRows, AreMeansOfSquares) {
  for_rows(0, [](const Grid& g, auto x, int64_t first, auto y) {
    for (int i = 0; i < g.width; ++i) {
      double sum = 0;
      for (int dy = 0; dy < g.side; ++dy) {
        for (int dx = 0; dx < g.side; ++dx) sum += element(g, x, first, dy, dx, i);
      }
      EXPECT_NEAR(y[static_cast<size_t>(i)], sum / (g.side * g.side), 1e-5);
    }
  });
}

TEST(PoolRows, UnfoldedHaveAllElementsOfAChannelSideBySide) {
  for_rows(1, [](const Grid& g, auto x, int64_t first, auto y) {
    size_t at = 0;
    for (int i = 0; i < g.width; ++i) {
      for (int dy = 0; dy < g.side; ++dy) {
        for (int dx = 0; dx < g.side; ++dx) EXPECT_EQ(y[at++], element(g, x, first, dy, dx, i));
      }
    }
  });
}

TEST(PoolRows, UnfoldedHaveOnePatchBehindTheOther) {
  for_rows(2, [](const Grid& g, auto x, int64_t first, auto y) {
    size_t at = 0;
    for (int dy = 0; dy < g.side; ++dy) {
      for (int dx = 0; dx < g.side; ++dx) {
        for (int i = 0; i < g.width; ++i) EXPECT_EQ(y[at++], element(g, x, first, dy, dx, i));
      }
    }
  });
}

}  // namespace
}  // namespace ktx::kernels

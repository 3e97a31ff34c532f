// Positions in a grid: rotation by time, line and column, and learned rows, against plain
// arithmetic.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <complex>
#include <vector>

#include "kernels/embed/embed_grid.h"
#include "kernels/rope/rope.h"
#include "kernels/rope/rope_grid.h"
#include "tests/kernels/kernel_cases.h"

namespace ktx::kernels {
namespace {

constexpr int kHeads = 3, kHeadDim = 22, kTokens = 20;

// The axis of each pair, written out.
struct Turns {
  RopeGridAttrs attrs;
  std::vector<int> axes;
};
const Turns kTurns[] = {
    {{kHeads, kHeadDim, 0, 16, 4, 4, 0, 1}, {1, 1, 1, 1, 2, 2, 2, 2}},
    {{kHeads, kHeadDim, 1, 16, 2, 5, 0, 1}, {0, 1, 1, 2, 2, 2, 2, 2}},
    {{kHeads, kHeadDim, 0, 22, 3, 2, 1, 1.25f}, {0, 1, 2, 0, 1, 2, 0, 1, 0, 0, 0}},
    {{kHeads, kHeadDim, 1, 6, 1, 1, 1, 1}, {0, 1, 2}},
    {{kHeads, kHeadDim, 0, 10, 0, 0, 0, 1}, {0, 0, 0, 0, 0}},
};

// Against complex numbers: a pair is one, which a turn multiplies.
TEST(RopeGrid, TurnsEachPairByOneOfThreePositions) {
  Random random(8);
  for (const Turns& turns : kTurns) {
    const RopeGridAttrs& attrs = turns.attrs;
    const std::vector<float> x = random.normals(int64_t{kTokens} * kHeads * kHeadDim, 2);
    std::vector<float> inv_freq;
    for (size_t i = 0; i < turns.axes.size(); ++i) {
      inv_freq.push_back(std::pow(0.6f, static_cast<float>(i)));
    }
    std::vector<std::vector<int32_t>> positions(3);
    for (int t = 0; t < kTokens; ++t) {
      for (int axis = 0; axis < 3; ++axis) positions[axis].push_back(t * (2 * axis + 1) % 31);
    }
    for (const Isa isa : usable_isas()) {
      std::vector<float> y = x, scratch(static_cast<size_t>(attrs.rotary_dim));
      RopeGridArgs a;
      a.y = y.data(), a.y_stride = kHeads * kHeadDim;
      a.inv_freq = inv_freq.data(), a.attrs = attrs, a.scratch = scratch.data();
      for (size_t axis = 0; axis < 3; ++axis) a.position[axis] = positions[axis].data();
      a.token_end = kTokens;
      (*find_rope_grid("rope_grid", isa))(a);
      for (int t = 0; t < kTokens; ++t) {
        for (int head = 0; head < kHeads; ++head) {
          const size_t row = static_cast<size_t>((t * kHeads + head) * kHeadDim);
          for (int pair = 0; pair < attrs.rotary_dim / 2; ++pair) {
            const size_t one = row + static_cast<size_t>(attrs.interleaved ? 2 * pair : pair);
            const size_t two =
                one + static_cast<size_t>(attrs.interleaved ? 1 : attrs.rotary_dim / 2);
            const auto of = static_cast<size_t>(pair);
            const double angle = double{inv_freq[of]} * positions[turns.axes[of]][t];
            const auto turned =
                std::complex<double>(x[one], x[two]) * std::polar(double{attrs.mscale}, angle);
            EXPECT_NEAR(y[one], turned.real(), 1e-4);
            EXPECT_NEAR(y[two], turned.imag(), 1e-4);
          }
          for (int i = attrs.rotary_dim; i < kHeadDim; ++i) EXPECT_EQ(y[row + i], x[row + i]);
        }
      }
    }
  }
}

// A text's bits are those of rope.
TEST(RopeGrid, IsRopeWhereAllPositionsAreAlike) {
  Random random(9);
  const std::vector<float> x = random.normals(int64_t{kTokens} * kHeads * kHeadDim, 2);
  std::vector<int32_t> position;
  for (int t = 0; t < kTokens; ++t) position.push_back(t * t * 37);
  for (const Turns& turns : kTurns) {
    const RopeGridAttrs& attrs = turns.attrs;
    const std::vector<float> inv_freq(turns.axes.size(), 0.37f);
    for (const Isa isa : usable_isas()) {
      std::vector<float> grid = x, plain = x, scratch(static_cast<size_t>(attrs.rotary_dim));
      RopeGridArgs a;
      a.y = grid.data(), a.y_stride = kHeads * kHeadDim;
      a.inv_freq = inv_freq.data(), a.attrs = attrs, a.scratch = scratch.data();
      a.position.fill(position.data());
      a.token_end = kTokens;
      (*find_rope_grid("rope_grid", isa))(a);
      RopeArgs b;
      b.x = b.y = nullptr;
      b.x = plain.data(), b.x_stride = kHeads * kHeadDim;
      b.y = plain.data(), b.y_stride = kHeads * kHeadDim;
      b.inv_freq = inv_freq.data(), b.position = position.data(), b.scratch = scratch.data();
      b.attrs = {.heads = kHeads,
                 .head_dim = kHeadDim,
                 .y_head_dim = kHeadDim,
                 .rotary_dim = attrs.rotary_dim,
                 .interleaved = attrs.interleaved,
                 .mscale = attrs.mscale};
      b.token_end = kTokens;
      (*find_rope("rope", isa))(b);
      EXPECT_EQ(grid, plain);
    }
  }
}

// Rows that are linear in line and column stay so, from corner to corner, in a grid of any size.
TEST(EmbedGrid, StretchesATableOverAnyGrid) {
  constexpr int kSide = 4, kWidth = 3;
  std::vector<float> table;
  for (int line = 0; line < kSide; ++line) {
    for (int column = 0; column < kSide; ++column) {
      for (int i = 0; i < kWidth; ++i) {
        table.push_back(static_cast<float>(10 * line + 3 * column + 100 * i));
      }
    }
  }
  for (const auto& [lines, columns] : {std::pair{4, 4}, {1, 1}, {1, 9}, {7, 2}, {40, 13}}) {
    std::vector<int32_t> line, column;
    for (int t = 0; t < lines * columns; ++t) {
      line.push_back(t / columns), column.push_back(t % columns);
    }
    std::vector<float> y(static_cast<size_t>(lines * columns * kWidth)), scratch(kWidth);
    EmbedGridArgs a;
    a.table.dtype = DType::F32, a.table.data = reinterpret_cast<const std::byte*>(table.data());
    a.table.rows = kSide * kSide, a.table.cols = kWidth, a.table.row_bytes = kWidth * 4;
    a.side = kSide, a.line = line.data(), a.column = column.data();
    a.lines = lines, a.columns = columns, a.scratch = scratch.data();
    a.y = y.data(), a.y_stride = kWidth, a.token_end = lines * columns;
    (*find_embed_grid("embed_grid", Isa::Scalar))(a);
    for (int t = 0; t < lines * columns; ++t) {
      const double down = (kSide - 1) * double(line[t]) / std::max(lines - 1, 1);
      const double right = (kSide - 1) * double(column[t]) / std::max(columns - 1, 1);
      for (int i = 0; i < kWidth; ++i) {
        EXPECT_NEAR(y[static_cast<size_t>(t * kWidth + i)], 10 * down + 3 * right + 100 * i, 1e-4);
      }
    }
  }
}

}  // namespace
}  // namespace ktx::kernels

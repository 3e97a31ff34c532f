// Squares of rows: each output row is made of side * side rows of x, which stand in a grid of
// `columns` a line (the patches of an image). It is their mean, or, unfolded, all of their
// elements:
//
//   y[t][i] = sum over dy, dx in [0, side) of x[first[t] + dy * columns + dx][i] / (side * side)
//   y[t][(i * side + dy) * side + dx] = x[first[t] + dy * columns + dx][i]        Channels
//   y[t][(dy * side + dx) * width + i] = x[first[t] + dy * columns + dx][i]       Patches
//
// The rows are added line by line, in F32. first[t] + reach(columns) must be a row of x; y does not
// overlap x. Each element depends on its own inputs alone: the same bits in any range.
#pragma once

#include <cstdint>
#include <string_view>

#include "lib/ops/step_attrs.h"
#include "lib/support/result.h"
#include "lib/target/isa.h"

namespace ktx::kernels {

struct PoolRowsArgs {
  const float* x = nullptr;
  int64_t x_stride = 0;  // elements
  float* y = nullptr;
  int64_t y_stride = 0;
  int64_t width = 0;               // of x
  const int32_t* first = nullptr;  // [R]
  int64_t columns = 1;
  PoolRowsAttrs attrs;
  int64_t token_begin = 0;  // rows of y
  int64_t token_end = 0;
};
using PoolRowsFn = void (*)(const PoolRowsArgs&);

// Family: "pool_rows".
Result<PoolRowsFn> find_pool_rows(std::string_view family, Isa isa);

}  // namespace ktx::kernels

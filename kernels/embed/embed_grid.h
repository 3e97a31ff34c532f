// Learned positions of patches, which stand in a grid of any size: a table of side * side rows is
// stretched over it, corner to corner.
//
//   line' = line * (side - 1) / max(lines - 1, 1), column' likewise
//   y[t] = the four rows around (line', column'), each by 1 - its distance in both directions
//
// in F32, added in the order in which they stand in the table. Each row depends on its own place
// alone: the same bits in any range.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "kernels/matmul/matmul.h"

namespace ktx::kernels {

struct EmbedGridArgs {
  WeightMatrix table;
  int64_t side = 1;
  // Places of the patches, and how many lines and columns there are.
  const int32_t* line = nullptr;    // [T]
  const int32_t* column = nullptr;  // [T]
  int64_t lines = 1, columns = 1;
  float* y = nullptr;
  int64_t y_stride = 0;  // elements
  int64_t token_begin = 0;
  int64_t token_end = 0;
  float* scratch = nullptr;  // a row of the table, one per thread
};
using EmbedGridFn = void (*)(const EmbedGridArgs&);

// Family: "embed_grid".
Result<EmbedGridFn> find_embed_grid(std::string_view family, Isa isa);

}  // namespace ktx::kernels

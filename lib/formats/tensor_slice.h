// Rows of a tensor of the source GGUF, as parameters and weights name where they come from.
#pragma once

#include <cstdint>
#include <string>

namespace ktx {

// A GGUF tensor, or `row_count` rows of it from `first_row` (all matrices' rows
// counted through; -1: all rows). A row is as long as one of its reader.
struct TensorSlice {
  std::string tensor;
  int64_t first_row = 0;
  int64_t row_count = -1;
};

}  // namespace ktx

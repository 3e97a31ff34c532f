// Rows of the embedding table: y[t] = table[ids[t]], decoded exactly to F32.
// Every id must be in [0, rows).
#pragma once

#include <cstdint>
#include <string_view>

#include "kernels/matmul/matmul.h"

namespace ktx::kernels {

struct EmbedArgs {
  WeightMatrix table;
  const int32_t* ids = nullptr;  // [T]
  float* y = nullptr;
  int64_t y_stride = 0;  // elements
  int64_t token_begin = 0;
  int64_t token_end = 0;
};
using EmbedFn = void (*)(const EmbedArgs&);

// Families: "embed_rows", and "embed_panel16" and "embed_panel16s" for a table in those layouts.
Result<EmbedFn> find_embed(std::string_view family, Isa isa);

}  // namespace ktx::kernels

// The element type that a tensor usually has in a Q4_K_M file. Estimates without a GGUF and
// synthetic models use it.
//
//   usual_dtype("blk.3.ffn_down_exps.weight", {768, 2048, 128}, shape_of_model)
//   -> Q6_K in about half of the layers, else Q4_K
#pragma once

#include <cstdint>
#include <string_view>

#include "lib/formats/dtype.h"

namespace ktx::arch {

struct ModelShape {
  int32_t layers = 0;
  int32_t experts = 0;
  bool tied = false;  // the embedding is the head as well
};

// `cols` is the row length: rows that are no whole blocks get a smaller format.
// `layer` is -1 outside of the layers.
DType usual_dtype(std::string_view tensor, int64_t cols, int64_t rows, int32_t layer,
                  const ModelShape& model);

}  // namespace ktx::arch

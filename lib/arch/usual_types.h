// The element types that tensors usually have in a file of some name ("Q4_K_M"). Estimates without
// a GGUF and synthetic models use them.
//
//   usual_dtype("blk.3.ffn_down_exps.weight", 768, 2048, 3, shape_of_model)
//   -> Q6_K in about half of the layers, else Q4_K
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "lib/formats/dtype.h"
#include "lib/ir/module_graph.h"

namespace ktx::arch {

struct ModelShape {
  int32_t layers = 0;
  int32_t experts = 0;
  bool tied = false;  // the embedding is the head as well
};

struct UsualTypes;  // a row of usual_types.def
// "q4_k_m" too; null when there is none.
const UsualTypes* find_usual_types(std::string_view name);
std::vector<std::string> usual_type_names();  // by size, the largest first

// `cols` is the row length: rows that are no whole blocks get a smaller format.
// `layer` is -1 outside of the layers. `types`: null for Q4_K_M.
DType usual_dtype(std::string_view tensor, int64_t cols, int64_t rows, int32_t layer,
                  const ModelShape& model, const UsualTypes* types = nullptr);

// Gives a graph that was built from a config alone the types of other files.
void take_usual_types(const UsualTypes& types, ir::ModuleGraph& graph);

}  // namespace ktx::arch

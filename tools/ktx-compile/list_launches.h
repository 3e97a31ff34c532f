// Parts and launches for people: --emit=launches.
//
//   part 1, cuda:0: steps 1 to 96
//     step 4, matmul of model.layers.0.self_attn.q_proj
//       1          marlin_gemv
//       2..16      marlin_skinny_gemm    sm_90 and newer
//     steps 3, 4, 5 and 6, products of model.layers.0.self_attn.v_proj
//       1          products_gemv
#pragma once

#include <string>

#include "lib/program/program.h"
#include "lib/target/target.h"

namespace ktx::tools {

// The graph has been through choose-launches. Lists all launches, or those that the GPUs of a
// described target may take.
std::string list_launches(const program::Program& program, const target::Target& target);

// "2..16      marlin_skinny_gemm    sm_90 and newer", without indentation, and its parts.
std::string launch_line(const program::Launch& launch);
std::string tokens_text(const program::Launch& launch);      // "1", "2..16", "17..", "any"
std::string conditions_text(const program::Launch& launch);  // "" for always

// Whether a GPU of the target may take it; true where the target has none.
bool may_take(const target::Target& target, const program::Launch& launch);

}  // namespace ktx::tools

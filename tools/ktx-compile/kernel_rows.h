// The kernels of a model, alike steps together: what the report shows.
//
//   cuda:0  products in 48 places  1      products_gemv
//   cuda:0  matmul in 96 places    2..16  marlin_skinny_gemm  sm_90 and newer
//   cpu     matmul in 4 places     any    matmul_panel16_q8
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "lib/program/program.h"
#include "lib/target/target.h"

namespace ktx::tools {

struct KernelRow {
  std::string device;
  std::string op;  // of a step or of a fused op
  std::string tokens;
  std::string kernel;  // on the CPU the family of fast precision
  std::string conditions;
  size_t places = 0;
};

// By device and in the order in which ops first appear; of the launches those that the GPUs of a
// described target may take. The graph has been through choose-launches.
std::vector<KernelRow> kernel_rows(const program::Program& program, const target::Target& target);

}  // namespace ktx::tools

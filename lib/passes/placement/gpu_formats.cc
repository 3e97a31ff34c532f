#include "lib/passes/placement/gpu_formats.h"

#include <fmt/format.h>

#include "kernels/matmul/marlin_layout.h"

namespace ktx::passes {
namespace {

// Routed experts are computed from tiles alone.
bool gpus_take(ir::Role role, DType dtype) {
  if (kernels::marlin_takes(dtype)) return true;
  if (role == ir::Role::Experts) return false;
  return dtype == DType::F32 || dtype == DType::F16 || dtype == DType::BF16;
}

}  // namespace

std::string gpu_refusal(ir::Role role, const ir::Param& param) {
  if (role == ir::Role::Experts && param.name.ends_with("_factors")) {
    return "no GPU kernel applies a factor to each expert's gate and up";
  }
  const bool vectors = param.rows == 1 || param.name.ends_with("bias");
  const bool table = role == ir::Role::Router && param.name == "table";  // of expert numbers
  if (vectors || table || gpus_take(role, param.dtype)) return "";
  return fmt::format("no GPU kernel supports {} weights", name(param.dtype));
}

}  // namespace ktx::passes

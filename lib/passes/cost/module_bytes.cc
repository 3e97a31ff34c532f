#include "lib/passes/cost/module_bytes.h"

#include "lib/formats/dtype.h"
#include "lib/support/byte_reader.h"

namespace ktx::passes {

uint64_t times(uint64_t a, uint64_t b) {
  return checked_mul(a, b).value_or(UINT64_MAX / 4);
}

uint64_t param_bytes(const ir::Param& param, bool dense) {
  const auto rows = times(static_cast<uint64_t>(param.rows), static_cast<uint64_t>(param.matrices));
  // Dense products read 16-bit weights; vectors and floats stay as they are.
  const bool widened = dense && param.rows > 1 && param.dtype != DType::F32;
  const auto row = widened ? param.cols * 2 : row_bytes(param.dtype, param.cols).value_or(0);
  return times(rows, static_cast<uint64_t>(row));
}

namespace {

uint64_t bytes_of(const ir::Module& module, bool dense) {
  uint64_t sum = 0;
  for (const ir::Param& param : module.params) sum += param_bytes(param, dense);
  return sum;
}

}  // namespace

uint64_t placed_bytes(const ir::Module& module) {
  return bytes_of(module, module.decision.op == "dense");
}

uint64_t source_bytes(const ir::Module& module) {
  return bytes_of(module, false);
}

}  // namespace ktx::passes

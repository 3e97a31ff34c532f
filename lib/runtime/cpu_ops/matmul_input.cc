#include "lib/runtime/cpu_ops/matmul_input.h"

#include <fmt/format.h>

namespace ktx::runtime {

Result<std::array<kernels::MatmulFn, kBatchClasses>> matmul_functions(const BindContext& context,
                                                                      DType dtype,
                                                                      const BoundView& xq) {
  return context.functions<kernels::MatmulFn>(
      [&](std::string_view family) -> Result<kernels::MatmulFn> {
        if (family == "matmul_rows_q8" && !xq.data) {
          return Error{
              fmt::format("kernel {} needs int8 activations, which the step lacks", family)};
        }
        return kernels::find_matmul(family, dtype, context.isa);
      });
}

}  // namespace ktx::runtime

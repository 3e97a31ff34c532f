// What all products check when they are bound: that the kernel exists for the
// weight's dtype, and that its int8 input is there and has the kernel's row size.
#pragma once

#include <array>

#include "kernels/matmul/matmul.h"
#include "lib/runtime/cpu_step.h"
#include "lib/support/result.h"

namespace ktx::runtime {

Result<std::array<kernels::MatmulFn, kBatchClasses>> matmul_functions(const BindContext& context,
                                                                      DType dtype,
                                                                      const BoundView& xq);

}  // namespace ktx::runtime

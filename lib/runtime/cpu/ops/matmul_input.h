// Checks of all products when they are bound: the kernel exists for the weight's dtype and
// reads its layout, and its int8 or BF16 input is present.
#pragma once

#include "kernels/matmul/matmul.h"
#include "lib/runtime/cpu/cpu_step.h"
#include "lib/support/result.h"

namespace ktx::runtime {

Result<kernels::MatmulKernel> matmul_kernel(const BindContext& context, const BoundWeight& weight,
                                            const BoundView& xq);

}  // namespace ktx::runtime

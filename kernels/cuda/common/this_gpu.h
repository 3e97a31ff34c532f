// The current GPU as the choice of kernels sees it (kernels/gpu/gpu_kernels.h).
#pragma once

#include <cstdint>

#include "kernels/gpu/gpu_kernels.h"
#include "lib/support/result.h"

namespace ktx::kernels {

GpuMachine this_gpu();
// Which of KernelNeed this machine and this program have; of the cache nothing.
uint32_t this_gpu_has();

// The first choice of the table here; for launches that name no kernel, in tests and benchmarks.
Result<GpuKernel> kernel_here(const GpuForm& form, int64_t rows);

}  // namespace ktx::kernels

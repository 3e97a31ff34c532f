#include "kernels/cuda/common/this_gpu.h"

#include "kernels/cuda/common/cuda_launch.cuh"
#include "kernels/cuda/matmul/cublas.h"
#include "kernels/cuda/matmul/marlin_products.cuh"

namespace ktx::kernels {

GpuMachine this_gpu() {
  return {compute_capability(), sm_count(), shared_memory_limit()};
}

uint32_t this_gpu_has() {
  return (cublas_found() ? kNeedsCublas : kNeedsNothing) |
         (marlin_gemm_wgmma_runs() ? kNeedsWgmma : kNeedsNothing);
}

Result<GpuKernel> kernel_here(const GpuForm& form, int64_t rows) {
  const auto kernel = first_choice(choose_gpu_kernels(form, this_gpu()), rows, this_gpu_has());
  if (kernel) return *kernel;
  return Error{"no GPU kernel takes these weights"};
}

}  // namespace ktx::kernels

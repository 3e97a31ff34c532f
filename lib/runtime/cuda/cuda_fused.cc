// Launches of fused ops: the table of their makers.
#include "lib/runtime/cuda/fused_members.h"

namespace ktx::runtime {
namespace {

struct Row {
  kernels::GpuKernel kernel;
  Result<std::unique_ptr<GpuStep>> (*make)(const FusedMembers&);
};
constexpr Row kRows[] = {
#define KTX_CUDA_FUSED(kernel, make) {kernels::GpuKernel::kernel, make},
#include "lib/runtime/cuda/cuda_fused.def"
#undef KTX_CUDA_FUSED
};

}  // namespace

Result<std::unique_ptr<GpuStep>> make_cuda_fused(CudaGpu& gpu, const GpuBindContext& context) {
  const kernels::GpuKernel kernel = CudaBind(gpu, context).kernel();
  for (const Row& row : kRows) {
    if (row.kernel == kernel) return row.make(FusedMembers(gpu, context));
  }
  return Error{"no launcher for kernel " + context.launch.kernel};
}

}  // namespace ktx::runtime

// Launches of fused ops: the table of their makers.
#include "lib/runtime/cuda/fused_members.h"

namespace ktx::runtime {
namespace {

struct FusedRow {
  kernels::GpuKernel kernel;
  Result<std::unique_ptr<GpuStep>> (*make)(const FusedMembers&);
};
constexpr FusedRow kRows[] = {
#define KTX_GPU_KERNEL(...)
#define KTX_GPU_FUSED_KERNEL(id, ...) {kernels::GpuKernel::id, make_fused<kernels::GpuKernel::id>},
#include "kernels/gpu/gpu_kernels.def"
#undef KTX_GPU_FUSED_KERNEL
#undef KTX_GPU_KERNEL
};

}  // namespace

Result<std::unique_ptr<GpuStep>> make_cuda_fused(CudaGpu& gpu, const GpuBindContext& context) {
  const kernels::GpuKernel kernel = CudaBind(gpu, context).kernel();
  for (const FusedRow& row : kRows) {
    if (row.kernel == kernel) return row.make(FusedMembers(gpu, context));
  }
  return Error{"no launcher for kernel " + context.launch.kernel};
}

}  // namespace ktx::runtime

// For which rows each kernel of gpu_kernels.def is the choice.
#pragma once

#include "kernels/gpu/gpu_kernels.h"

namespace ktx::kernels {

#define KTX_GPU_KERNEL(id, name, least, most, needs, range, ...) \
  RowRange range(const GpuForm&, const GpuMachine&);
#define KTX_GPU_FUSED_KERNEL(id, name, least, most, needs, range, ...) \
  RowRange range(const GpuForm&, const GpuMachine&);
namespace gpu_ranges {
#include "kernels/gpu/gpu_kernels.def"
}  // namespace gpu_ranges
#undef KTX_GPU_FUSED_KERNEL
#undef KTX_GPU_KERNEL

}  // namespace ktx::kernels

#include "kernels/cuda/matmul/product_launcher.cuh"

#include <algorithm>
#include <span>

#include "kernels/cuda/matmul/product_forms.h"

namespace ktx::kernels {

const ProductLauncher product_launchers::by_op{};

namespace {

struct Row {
  GpuKernel kernel;
  const ProductLauncher* launcher;
};
constexpr Row kRows[] = {
#define KTX_GPU_KERNEL(id, name, least, most, needs, range, launcher, ...) \
  {GpuKernel::id, &product_launchers::launcher},
#define KTX_GPU_FUSED_KERNEL(...)
#include "kernels/gpu/gpu_kernels.def"
#undef KTX_GPU_FUSED_KERNEL
#undef KTX_GPU_KERNEL
};

}  // namespace

const ProductLauncher* product_launcher(GpuKernel kernel, StepOp op) {
  const std::span<const StepOp> ops = info(kernel).ops;
  if (std::find(ops.begin(), ops.end(), op) == ops.end()) return nullptr;
  for (const Row& row : kRows) {
    if (row.kernel == kernel) return row.launcher->launch ? row.launcher : nullptr;
  }
  return nullptr;
}

MarlinProduct product_with(const CudaWeight& w) {
  MarlinProduct p;
  p.w[0] = reinterpret_cast<const uint8_t*>(w.data);
  p.matrix_bytes[0] = w.matrix_bytes;
  if (is_marlin(w)) p.strip_bytes = marlin_strip_bytes(w.dtype, w.cols);
  p.cols = static_cast<int>(w.cols);
  p.row_count = static_cast<int>(w.rows);
  return p;
}

}  // namespace ktx::kernels

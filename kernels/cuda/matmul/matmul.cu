// matmul and matmul_heads by the kernel that the launch names (kernels/gpu/gpu_kernels.def).
#include "kernels/cuda/matmul/cuda_matmul.h"

#include "kernels/cuda/common/cuda_launch.cuh"
#include "kernels/cuda/common/launch_forms.h"
#include "kernels/cuda/matmul/product_launcher.cuh"
#include "kernels/matmul/marlin_layout.h"
#include "lib/formats/layout.h"

namespace ktx::kernels {

namespace {

Error cannot(GpuKernel kernel, int64_t tokens, const CudaWeight& w) {
  if (!cuda_matmul_takes(w.dtype, w.layout)) {
    return Error{"no GPU product takes weights of " + std::string(name(w.dtype)) + " in layout " +
                 std::string(name(w.layout))};
  }
  return Error{"kernel " + std::string(info(kernel).name) + " takes no " + std::to_string(tokens) +
               " tokens with weights of " + std::string(name(w.dtype)) + " in layout " +
               std::string(name(w.layout))};
}

template <class Args>
ProductArgs product_of(const Args& a) {
  ProductArgs product{.w = a.w, .p = product_with(a.w), .x_rows = a.tokens};
  product.p.x = a.x;
  product.p.x_stride = a.x_stride;
  product.p.tokens = static_cast<int>(a.tokens);
  product.p.y = a.y;
  product.p.y_stride = a.y_stride;
  product.workspace = a.workspace;
  product.workspace_bytes = a.workspace_bytes;
  return product;
}

Status launch_product(GpuKernel kernel, StepOp op, const ProductArgs& a, CudaStream stream) {
  const ProductLauncher* launcher = product_launcher(kernel, op);
  if (!launcher || launcher->layout != a.w.layout || !cuda_matmul_takes(a.w.dtype, a.w.layout)) {
    return cannot(kernel, a.x_rows, a.w);
  }
  KTX_TRY(check_workspace("matmul", a.workspace_bytes, launcher->workspace_bytes(a.x_rows, a.w)));
  if (launcher->takes && !launcher->takes(a)) return cannot(kernel, a.x_rows, a.w);
  return launcher->launch(a, stream);
}

}  // namespace

bool cuda_matmul_takes(DType dtype, Layout layout) {
  if (layout == Layout::Marlin) return marlin_takes(dtype);
  return layout == Layout::Rows &&
         (dtype == DType::F32 || dtype == DType::F16 || dtype == DType::BF16);
}

int64_t cuda_matmul_workspace(const CudaMatmulArgs& a) {
  const GpuKernel kernel = kernel_of(a, GpuKernel::RowsGemm);
  const ProductLauncher* launcher = product_launcher(kernel, StepOp::Matmul);
  return launcher ? launcher->workspace_bytes(a.tokens, a.w) : 0;
}

Status launch_matmul(const CudaMatmulArgs& a, CudaStream stream) {
  if (a.tokens == 0) return {};
  ProductArgs product = product_of(a);
  product.p.bias[0] = a.bias;
  product.p.accumulate = a.accumulate;
  return launch_product(kernel_of(a, GpuKernel::RowsGemm), StepOp::Matmul, product, stream);
}

int64_t cuda_matmul_heads_workspace(const CudaMatmulHeadsArgs&) {
  return 0;
}

Status launch_matmul_heads(const CudaMatmulHeadsArgs& a, CudaStream stream) {
  if (a.tokens == 0) return {};
  ProductArgs product = product_of(a);
  product.transposed = a.attrs.transposed != 0;
  product.p.matrices = a.attrs.heads;
  product.p.x_head = a.attrs.x_stride;
  product.p.y_head = a.attrs.y_stride;
  product.p.row_begin = a.attrs.row_begin;
  product.p.row_count = a.attrs.row_count;
  return launch_product(kernel_of(a, GpuKernel::RowsGemm), StepOp::MatmulHeads, product, stream);
}

}  // namespace ktx::kernels

// matmul and matmul_heads by the kernel that the launch names (kernels/gpu/gpu_kernels.def).
#include "kernels/cuda/matmul/cuda_matmul.h"

#include "kernels/cuda/common/launch_forms.h"
#include "kernels/cuda/gemv/marlin_gemv.h"
#include "kernels/cuda/matmul/cublas_products.h"
#include "kernels/cuda/matmul/half_rows.cuh"
#include "kernels/cuda/matmul/marlin_products.cuh"
#include "kernels/cuda/matmul/rows_gemm.cuh"
#include "kernels/cuda/skinny_gemm/cuda_fused_skinny_gemm.h"
#include "kernels/cuda/skinny_gemm/marlin_skinny.h"
#include "kernels/matmul/marlin_layout.h"
#include "lib/formats/layout.h"

namespace ktx::kernels {

Status launch_marlin_transposed(const CudaMatmulHeadsArgs& args, cudaStream_t stream);

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

// Whether the weights are in the layout that the kernel reads.
bool reads(GpuKernel kernel, const CudaWeight& w) {
  return cuda_matmul_takes(w.dtype, w.layout) &&
         (kernel == GpuKernel::RowsGemm) == (w.layout == Layout::Rows);
}

MarlinProduct marlin_product(const CudaWeight& w, const float* x, int64_t x_stride, int64_t tokens,
                             float* y, int64_t y_stride) {
  MarlinProduct p;
  p.w[0] = reinterpret_cast<const uint8_t*>(w.data);
  p.matrix_bytes[0] = w.matrix_bytes;
  p.strip_bytes = marlin_strip_bytes(w.dtype, w.cols);
  p.cols = static_cast<int>(w.cols);
  p.row_count = static_cast<int>(w.rows);
  p.x = x;
  p.x_stride = x_stride;
  p.tokens = static_cast<int>(tokens);
  p.y = y;
  p.y_stride = y_stride;
  return p;
}

Status launch_rows(const CudaMatmulArgs& a, CudaStream stream) {
  PlainProduct p;
  p.w = a.w;
  p.row_count = a.w.rows;
  p.x = a.x;
  p.x_stride = a.x_stride;
  p.tokens = a.tokens;
  p.y = a.y;
  p.y_stride = a.y_stride;
  p.bias = a.bias;
  p.accumulate = a.accumulate;
  return launch_plain(p, stream);
}

Status launch_skinny(const CudaMatmulArgs& a, CudaStream stream) {
  CudaSkinnyProductsArgs skinny;
  skinny.x = {a.x, a.x_stride, a.tokens, nullptr, 0};
  skinny.outputs[0] = {a.w, a.y, a.y_stride, a.bias, a.accumulate};
  skinny.count = 1;
  skinny.workspace = a.workspace;
  skinny.workspace_bytes = a.workspace_bytes;
  return launch_skinny_products(skinny, stream);
}

Status launch_heads_of_rows(const CudaMatmulHeadsArgs& a, CudaStream stream) {
  PlainProduct p;
  p.w = a.w;
  p.row_begin = a.attrs.row_begin;
  p.row_count = a.attrs.row_count;
  p.heads = a.attrs.heads;
  p.x = a.x;
  p.x_stride = a.x_stride;
  p.x_head = a.attrs.x_stride;
  p.tokens = a.tokens;
  p.y = a.y;
  p.y_stride = a.y_stride;
  p.y_head = a.attrs.y_stride;
  return a.attrs.transposed ? launch_plain_transposed(p, stream) : launch_plain(p, stream);
}

}  // namespace

bool cuda_matmul_takes(DType dtype, Layout layout) {
  if (layout == Layout::Marlin) return marlin_takes(dtype);
  return layout == Layout::Rows &&
         (dtype == DType::F32 || dtype == DType::F16 || dtype == DType::BF16);
}

int64_t cuda_matmul_workspace(const CudaMatmulArgs& a) {
  const GpuKernel kernel = kernel_of(a, GpuKernel::RowsGemm);
  if (kernel == GpuKernel::CublasGemm) return cublas_product_workspace(a.tokens, a.w);
  if (kernel == GpuKernel::MarlinSkinnyGemm) return skinny_workspace(a.tokens, a.w.cols);
  return is_gemm(kernel) ? half_rows_bytes(a.tokens, a.w.cols) : 0;
}

Status launch_matmul(const CudaMatmulArgs& a, CudaStream stream) {
  if (a.tokens == 0) return {};
  const GpuKernel kernel = kernel_of(a, GpuKernel::RowsGemm);
  if (!reads(kernel, a.w)) return cannot(kernel, a.tokens, a.w);
  KTX_TRY(check_workspace("matmul", a.workspace_bytes, cuda_matmul_workspace(a)));
  if (kernel == GpuKernel::RowsGemm) return launch_rows(a, stream);
  MarlinProduct p = marlin_product(a.w, a.x, a.x_stride, a.tokens, a.y, a.y_stride);
  p.bias[0] = a.bias;
  p.accumulate = a.accumulate;
  switch (kernel) {
    case GpuKernel::MarlinGemv:
      if (a.tokens != 1 || !marlin_gemv_fits(a.w.dtype, a.w.cols, 1)) break;
      return launch_marlin_gemv(a.w.dtype, p, stream);
    case GpuKernel::MarlinSkinnyGemm:
      if (a.tokens > kCudaSkinnyTokens || !marlin_skinny_runs()) break;
      return launch_skinny(a, stream);
    case GpuKernel::CublasGemm:
      return launch_cublas_product(a, stream);
    case GpuKernel::MarlinGemmMma:
    case GpuKernel::MarlinGemmWgmma:
      return launch_marlin_gemm_mma(a.w.dtype, p, p.tokens, a.workspace,
                                    kernel == GpuKernel::MarlinGemmWgmma, stream);
    case GpuKernel::MarlinFewGemm:
      return launch_marlin_few_gemm(a.w.dtype, p, stream);
    default:
      break;
  }
  return cannot(kernel, a.tokens, a.w);
}

int64_t cuda_matmul_heads_workspace(const CudaMatmulHeadsArgs&) {
  return 0;
}

Status launch_matmul_heads(const CudaMatmulHeadsArgs& a, CudaStream stream) {
  if (a.tokens == 0) return {};
  const GpuKernel kernel = kernel_of(a, GpuKernel::RowsGemm);
  if (!reads(kernel, a.w)) return cannot(kernel, a.tokens, a.w);
  if (kernel == GpuKernel::RowsGemm) return launch_heads_of_rows(a, stream);
  if (a.attrs.transposed != (kernel == GpuKernel::MarlinTransposed)) {
    return cannot(kernel, a.tokens, a.w);
  }
  MarlinProduct p = marlin_product(a.w, a.x, a.x_stride, a.tokens, a.y, a.y_stride);
  p.matrices = a.attrs.heads;
  p.x_head = a.attrs.x_stride;
  p.y_head = a.attrs.y_stride;
  p.row_begin = a.attrs.row_begin;
  p.row_count = a.attrs.row_count;
  switch (kernel) {
    case GpuKernel::MarlinTransposed:
      return launch_marlin_transposed(a, stream);
    case GpuKernel::MarlinGemv:
      if (a.tokens != 1 || !marlin_gemv_fits(a.w.dtype, a.w.cols, 1)) break;
      return launch_marlin_gemv(a.w.dtype, p, stream);
    case GpuKernel::MarlinFewGemm:
      return launch_marlin_few_gemm(a.w.dtype, p, stream);
    default:
      break;
  }
  return cannot(kernel, a.tokens, a.w);
}

}  // namespace ktx::kernels

// How each kernel of products is launched: the column `launcher` of gpu_kernels.def, which names
// an object that one .cu defines: the kernel's own, or one that launches several kernels
// (marlin_products.cu, fused_skinny_gemm.cu).
//
//   const ProductLauncher product_launchers::marlin_gemv{.takes = takes, .launch = launch_gemv};
#pragma once

#include "kernels/cuda/matmul/marlin_products.cuh"
#include "kernels/gpu/gpu_kernels.h"

namespace ktx::kernels {

// A product of matmul, matmul_heads, experts_gate_up or experts_down.
struct ProductArgs {
  CudaWeight w;             // the matrices of p.w[0]
  MarlinProduct p;          // what is multiplied, and where it goes
  int64_t x_rows = 0;       // rows of p.x
  bool transposed = false;  // heads alone: w[h]^T . x
  std::byte* workspace = nullptr;
  int64_t workspace_bytes = 0;
};

struct ProductLauncher {
  Layout layout = Layout::Marlin;               // of the weights that the kernel reads
  bool (*takes)(const ProductArgs&) = nullptr;  // null: every product of the row's ops
  int64_t (*workspace)(int64_t x_rows, const CudaWeight& w) = nullptr;  // bytes; null: none
  Status (*launch)(const ProductArgs&, cudaStream_t) = nullptr;

  int64_t workspace_bytes(int64_t x_rows, const CudaWeight& w) const {
    return workspace ? workspace(x_rows, w) : 0;
  }
};

namespace product_launchers {
#define KTX_GPU_KERNEL(id, name, least, most, needs, range, launcher, ...) \
  extern const ProductLauncher launcher;
#define KTX_GPU_FUSED_KERNEL(...)
#include "kernels/gpu/gpu_kernels.def"
#undef KTX_GPU_FUSED_KERNEL
#undef KTX_GPU_KERNEL
}  // namespace product_launchers

// Null: the kernel does not compute this op, or no product.
const ProductLauncher* product_launcher(GpuKernel kernel, StepOp op);

// A product with all rows of the first matrix; without activations.
MarlinProduct product_with(const CudaWeight& w);

}  // namespace ktx::kernels

// cuBLAS, opened at run time, so that programs start on machines without it.
//
// The newest libcublas of the toolkit that this was built with is tried, then the one before. What
// is used: cublasGemmEx with F16 operands and F32 sums, on memory that the caller brings. Source:
// NVIDIA's cuBLAS documentation (cublasGemmEx, cublasSetWorkspace).
//
//   if (cublas_found()) { start_cublas(); ... launch_half_gemm(gemm, stream); }
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/common/cuda_stream.h"
#include "lib/support/result.h"

namespace ktx::kernels {

// Whether the library is on this machine. The first call opens it.
bool cublas_found();

// Makes the library ready on the current GPU, once; takes a tenth of a second, so start-up does it
// beside the upload of weights. A launch before that does it itself.
Status start_cublas();

// y[t][n] = beta * y[t][n] + alpha * sum over k of x[t][k] * w[n][k]
struct HalfGemm {
  const uint16_t* w = nullptr;             // [rows, cols] of IEEE halves, dense, 16-byte aligned
  const uint16_t* x = nullptr;             // [tokens, cols], likewise
  int64_t rows = 0, cols = 0, tokens = 0;  // cols: a multiple of 8
  float* y = nullptr;
  int64_t y_stride = 0;
  const float* alpha = nullptr;  // alpha and beta lie in device memory
  const float* beta = nullptr;
  std::byte* workspace = nullptr;  // kCublasWorkspace bytes, 256-byte aligned
};
// What NVIDIA advises for Hopper; other generations need less.
inline constexpr int64_t kCublasWorkspace = int64_t{32} << 20;
Status launch_half_gemm(const HalfGemm& gemm, CudaStream stream);

}  // namespace ktx::kernels

// Products of activations with packed weights on the GPU.
//
//   matmul        y[t, n] = (accumulate ? y[t, n] : 0) + x[t] . w[n] + bias[n]
//   matmul_heads  see MatmulHeadsAttrs: one product per head, or its transpose
//   dequantize    weights as F16 rows, for the library's products of large batches
//
// Which kernel runs is said by the launch; the rows of kernels/gpu/gpu_kernels.def say which one is
// chosen for which weights, numbers of tokens and machines.
//
// Numerics: weights of block formats are decoded to F16 (one rounding), activations are
// taken in F16 scaled by a power of two per row and range of columns, so that no value
// overflows; products are summed in F32. F32 and BF16 weights are multiplied in F32.
#pragma once

#include <optional>

#include "kernels/cuda/common/cuda_stream.h"
#include "kernels/cuda/marlin/cuda_weight.h"
#include "kernels/gpu/gpu_kernels.h"
#include "lib/ops/step_attrs.h"
#include "lib/support/result.h"

namespace ktx::kernels {

struct CudaMatmulArgs {
  CudaWeight w;
  const float* x = nullptr;  // [tokens, cols], 16-byte aligned, stride a multiple of 4
  int64_t x_stride = 0;
  int64_t tokens = 0;
  float* y = nullptr;  // [tokens, rows]; overlaps no input
  int64_t y_stride = 0;
  const float* bias = nullptr;  // [rows] or null
  bool accumulate = false;
  std::optional<GpuKernel> kernel;  // none: the first choice on this GPU
  std::byte* workspace = nullptr;
  int64_t workspace_bytes = 0;
};
int64_t cuda_matmul_workspace(const CudaMatmulArgs& args);
Status launch_matmul(const CudaMatmulArgs& args, CudaStream stream);

// Head h: matrix h of w (w.rows rows of w.cols), rows [row_begin, row_begin + row_count).
// Straight: k = w.cols, n = row_count. Transposed: k = row_count, n = w.cols.
struct CudaMatmulHeadsArgs {
  CudaWeight w;
  MatmulHeadsAttrs attrs;
  const float* x = nullptr;  // row of a token; head h begins attrs.x_stride * h further
  int64_t x_stride = 0;      // between tokens
  int64_t tokens = 0;
  float* y = nullptr;
  int64_t y_stride = 0;
  std::optional<GpuKernel> kernel;  // none: the first choice on this GPU
  std::byte* workspace = nullptr;
  int64_t workspace_bytes = 0;
};
int64_t cuda_matmul_heads_workspace(const CudaMatmulHeadsArgs& args);
Status launch_matmul_heads(const CudaMatmulHeadsArgs& args, CudaStream stream);

// out[row][col] of the first matrix in F16 (IEEE half), rows dense.
struct CudaDequantizeArgs {
  CudaWeight w;
  uint16_t* out = nullptr;  // [rows, cols], 16-byte aligned
};
Status launch_dequantize(const CudaDequantizeArgs& args, CudaStream stream);

// xh[t][k] = F16(x[t][k] / scale[t]), scale[t] the power of two that brings the largest
// magnitude of the row to at most 1024 (1 when it is smaller than that already and not
// tiny). The product of xh is to be multiplied by scale[t].
struct CudaHalfRowsArgs {
  const float* x = nullptr;
  int64_t x_stride = 0;
  int64_t tokens = 0;
  int64_t cols = 0;
  uint16_t* xh = nullptr;  // [tokens, cols]
  float* scale = nullptr;  // [tokens]
};
Status launch_half_rows(const CudaHalfRowsArgs& args, CudaStream stream);

}  // namespace ktx::kernels

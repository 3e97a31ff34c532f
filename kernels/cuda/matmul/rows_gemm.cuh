// Products with float weights as they stand in the file (layout `rows`): F32, F16, BF16.
#pragma once

#include "kernels/cuda/common/cuda_stream.h"
#include "kernels/cuda/marlin/cuda_weight.h"
#include "lib/support/result.h"

namespace ktx::kernels {

// y[t, h, n] = x[t, h] . w[h][row_begin + n], or its transpose: n over columns, the sum over
// rows [row_begin, row_begin + row_count).
struct PlainProduct {
  CudaWeight w;
  int64_t row_begin = 0, row_count = 0;
  int heads = 1;
  const float* x = nullptr;
  int64_t x_stride = 0, x_head = 0;
  int64_t tokens = 0;
  float* y = nullptr;
  int64_t y_stride = 0, y_head = 0;
  const float* bias = nullptr;
  bool accumulate = false;
};

Status launch_plain(const PlainProduct& product, CudaStream stream);
// Few tokens and F32: y = w . n + bias, normed = n, n the RMS norm of x by `norm` [cols].
Status launch_plain_normed(const PlainProduct& product, const float* norm, float eps, float* normed,
                           int64_t normed_stride, CudaStream stream);
Status launch_plain_transposed(const PlainProduct& product, CudaStream stream);

}  // namespace ktx::kernels

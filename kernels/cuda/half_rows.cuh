// Rows of activations in F16 with a power of two per row taken out.
#pragma once

#include "kernels/cuda/cuda_launch.cuh"
#include "kernels/cuda/cuda_matmul.h"

namespace ktx::kernels {

// Rows get half_cols halves, zeros from `cols` on.
Status launch_half_rows_padded(const CudaHalfRowsArgs& args, int64_t half_cols,
                               cudaStream_t stream);

}  // namespace ktx::kernels

// Products of many tokens by cuBLAS: weights become F16 in the workspace, a piece of rows at a
// time, activations F16 with one power of two taken out of all of them, which the library puts
// back.
//
// One power of two, not one a row, so that nothing has to go over the results again. The largest
// magnitude comes to 2^14; a row keeps eleven bits below its own largest as long as that is
// within 2^28 of all rows' largest.
#pragma once

#include "kernels/cuda/matmul/cuda_matmul.h"

namespace ktx::kernels {

// The layout of w is marlin.
int64_t cublas_product_workspace(int64_t tokens, const CudaWeight& w);
Status launch_cublas_product(const CudaMatmulArgs& args, CudaStream stream);

}  // namespace ktx::kernels

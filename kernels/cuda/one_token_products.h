// The products of cuda_one_token.h as marlin_one (marlin_one.h) and the persistent kernel take
// them.
#pragma once

#include "kernels/cuda/cuda_one_token.h"
#include "kernels/cuda/marlin_one.h"

namespace ktx::kernels {

OneProduct one_product(const CudaOneProductsArgs& args);
OneProduct one_product(const CudaOneGateUpArgs& args);
OneProduct one_product(const CudaOneChoicesArgs& args);
OneProduct one_product(const CudaOneSumArgs& args);

// Shared memory of the activations of `tiles` times 256 columns (marlin_one_x.cuh).
constexpr int one_x_bytes(int tiles) {
  return (tiles * (512 + 64 + 4) + 15) / 16 * 16;
}

}  // namespace ktx::kernels

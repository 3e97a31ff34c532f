// The kernel of few tokens on integer tensor cores for q, k and v of two formats.
#include "kernels/cuda/skinny_gemm/marlin_skinny_bytes.cuh"

namespace ktx::kernels {

#define KTX_MARLIN_PAIR(first, second)                                        \
  template bool bytes_take<DType::first, DType::second>(const BatchProduct&); \
  template Status launch_bytes<DType::first, DType::second>(const BatchProduct&, cudaStream_t);
#include "kernels/gpu/marlin_pairs.def"
#undef KTX_MARLIN_PAIR

}  // namespace ktx::kernels

// The kernel of few tokens on integer tensor cores for Q4_K Q5_K Q6_K.
#include "kernels/cuda/skinny_gemm/marlin_skinny_bytes.cuh"

namespace ktx::kernels {

#define KTX_BYTES(type)                                                    \
  template bool bytes_take<DType::type, DType::type>(const BatchProduct&); \
  template Status launch_bytes<DType::type, DType::type>(const BatchProduct&, cudaStream_t)
KTX_BYTES(Q4_K);
KTX_BYTES(Q5_K);
KTX_BYTES(Q6_K);
#undef KTX_BYTES

}  // namespace ktx::kernels

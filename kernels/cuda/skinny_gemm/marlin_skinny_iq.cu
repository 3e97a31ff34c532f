// The kernel of a batch for IQ4_NL IQ4_XS MXFP4.
#include "kernels/cuda/skinny_gemm/marlin_skinny.cuh"

namespace ktx::kernels {

template Status launch_batch<DType::IQ4_NL, DType::IQ4_NL>(const BatchProduct&, cudaStream_t);
template Status launch_batch<DType::IQ4_XS, DType::IQ4_XS>(const BatchProduct&, cudaStream_t);
template Status launch_batch<DType::MXFP4, DType::MXFP4>(const BatchProduct&, cudaStream_t);

}  // namespace ktx::kernels

// The kernel of many tokens for IQ4_NL IQ4_XS MXFP4.
#include "kernels/cuda/gemm/marlin_gemm_mma.cuh"

namespace ktx::kernels {

template Status launch_many_type<DType::IQ4_NL>(const MarlinProduct&, cudaStream_t);
template Status launch_many_type<DType::IQ4_XS>(const MarlinProduct&, cudaStream_t);
template Status launch_many_type<DType::MXFP4>(const MarlinProduct&, cudaStream_t);

}  // namespace ktx::kernels

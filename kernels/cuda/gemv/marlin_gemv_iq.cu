// The kernel of one token for IQ4_NL IQ4_XS MXFP4.
#include "kernels/cuda/gemv/marlin_gemv_launch.cuh"

namespace ktx::kernels {

template Status launch_one<DType::IQ4_NL, DType::IQ4_NL>(const OneProduct&, cudaStream_t);
template Status launch_one<DType::IQ4_XS, DType::IQ4_XS>(const OneProduct&, cudaStream_t);
template Status launch_one<DType::MXFP4, DType::MXFP4>(const OneProduct&, cudaStream_t);

}  // namespace ktx::kernels

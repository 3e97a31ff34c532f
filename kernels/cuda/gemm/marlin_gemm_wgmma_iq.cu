// The kernel of many tokens on Hopper for IQ4_NL IQ4_XS MXFP4.
#include "kernels/cuda/gemm/marlin_gemm_wgmma.cuh"

namespace ktx::kernels {

template Status launch_wide_type<DType::IQ4_NL>(const MarlinProduct&, const WideParts&,
                                                cudaStream_t);
template Status launch_wide_type<DType::IQ4_XS>(const MarlinProduct&, const WideParts&,
                                                cudaStream_t);
template Status launch_wide_type<DType::MXFP4>(const MarlinProduct&, const WideParts&,
                                               cudaStream_t);

}  // namespace ktx::kernels

// The kernel of many tokens on Hopper for Q4_K Q5_K Q6_K.
#include "kernels/cuda/gemm/marlin_gemm_wgmma.cuh"

namespace ktx::kernels {

template Status launch_wide_type<DType::Q4_K>(const MarlinProduct&, const WideParts&, cudaStream_t);
template Status launch_wide_type<DType::Q5_K>(const MarlinProduct&, const WideParts&, cudaStream_t);
template Status launch_wide_type<DType::Q6_K>(const MarlinProduct&, const WideParts&, cudaStream_t);

}  // namespace ktx::kernels

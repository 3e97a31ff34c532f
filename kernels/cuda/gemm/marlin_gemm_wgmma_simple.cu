// The kernel of many tokens on Hopper for Q4_0 Q4_1 Q5_0 Q5_1 Q8_0.
#include "kernels/cuda/gemm/marlin_gemm_wgmma.cuh"

namespace ktx::kernels {

template Status launch_wide_type<DType::Q4_0>(const MarlinProduct&, const WideParts&, cudaStream_t);
template Status launch_wide_type<DType::Q4_1>(const MarlinProduct&, const WideParts&, cudaStream_t);
template Status launch_wide_type<DType::Q5_0>(const MarlinProduct&, const WideParts&, cudaStream_t);
template Status launch_wide_type<DType::Q5_1>(const MarlinProduct&, const WideParts&, cudaStream_t);
template Status launch_wide_type<DType::Q8_0>(const MarlinProduct&, const WideParts&, cudaStream_t);

}  // namespace ktx::kernels

// The kernel of many tokens for Q4_0 Q4_1 Q5_0 Q5_1 Q8_0.
#include "kernels/cuda/gemm/marlin_gemm_mma.cuh"

namespace ktx::kernels {

template Status launch_many_type<DType::Q4_0>(const MarlinProduct&, cudaStream_t);
template Status launch_many_type<DType::Q4_1>(const MarlinProduct&, cudaStream_t);
template Status launch_many_type<DType::Q5_0>(const MarlinProduct&, cudaStream_t);
template Status launch_many_type<DType::Q5_1>(const MarlinProduct&, cudaStream_t);
template Status launch_many_type<DType::Q8_0>(const MarlinProduct&, cudaStream_t);

}  // namespace ktx::kernels

// The kernel of few tokens for Q4_K Q5_K Q6_K.
#include "kernels/cuda/gemm/marlin_few_gemm.cuh"

namespace ktx::kernels {

template Status launch_few_type<DType::Q4_K>(const MarlinProduct&, cudaStream_t);
template Status launch_few_type<DType::Q5_K>(const MarlinProduct&, cudaStream_t);
template Status launch_few_type<DType::Q6_K>(const MarlinProduct&, cudaStream_t);

}  // namespace ktx::kernels

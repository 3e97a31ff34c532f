// The kernel of a batch for Q4_K Q5_K Q6_K.
#include "kernels/cuda/skinny_gemm/marlin_skinny.cuh"

namespace ktx::kernels {

template Status launch_batch<DType::Q4_K, DType::Q4_K>(const BatchProduct&, cudaStream_t);
template Status launch_batch<DType::Q5_K, DType::Q5_K>(const BatchProduct&, cudaStream_t);
template Status launch_batch<DType::Q6_K, DType::Q6_K>(const BatchProduct&, cudaStream_t);

}  // namespace ktx::kernels

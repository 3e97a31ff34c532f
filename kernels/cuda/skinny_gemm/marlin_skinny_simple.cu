// The kernel of a batch for Q4_0 Q4_1 Q5_0 Q5_1 Q8_0.
#include "kernels/cuda/skinny_gemm/marlin_skinny.cuh"

namespace ktx::kernels {

template Status launch_batch<DType::Q4_0, DType::Q4_0>(const BatchProduct&, cudaStream_t);
template Status launch_batch<DType::Q4_1, DType::Q4_1>(const BatchProduct&, cudaStream_t);
template Status launch_batch<DType::Q5_0, DType::Q5_0>(const BatchProduct&, cudaStream_t);
template Status launch_batch<DType::Q5_1, DType::Q5_1>(const BatchProduct&, cudaStream_t);
template Status launch_batch<DType::Q8_0, DType::Q8_0>(const BatchProduct&, cudaStream_t);

}  // namespace ktx::kernels

// The kernel of one token for Q4_0 Q4_1 Q5_0 Q5_1 Q8_0.
#include "kernels/cuda/gemv/marlin_gemv_launch.cuh"

namespace ktx::kernels {

template Status launch_one<DType::Q4_0, DType::Q4_0>(const OneProduct&, cudaStream_t);
template Status launch_one<DType::Q4_1, DType::Q4_1>(const OneProduct&, cudaStream_t);
template Status launch_one<DType::Q5_0, DType::Q5_0>(const OneProduct&, cudaStream_t);
template Status launch_one<DType::Q5_1, DType::Q5_1>(const OneProduct&, cudaStream_t);
template Status launch_one<DType::Q8_0, DType::Q8_0>(const OneProduct&, cudaStream_t);

}  // namespace ktx::kernels

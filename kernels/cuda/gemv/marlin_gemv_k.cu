// The kernel of one token for Q4_K Q5_K Q6_K.
#include "kernels/cuda/gemv/marlin_gemv_launch.cuh"

namespace ktx::kernels {

template Status launch_one<DType::Q4_K, DType::Q4_K>(const OneProduct&, cudaStream_t);
template Status launch_one<DType::Q5_K, DType::Q5_K>(const OneProduct&, cudaStream_t);
template Status launch_one<DType::Q6_K, DType::Q6_K>(const OneProduct&, cudaStream_t);

}  // namespace ktx::kernels

// The kernel of one token for q, k and v of two formats, as the usual mixes have them.
#include "kernels/cuda/gemv/marlin_gemv_launch.cuh"

namespace ktx::kernels {

template Status launch_one<DType::Q4_K, DType::Q6_K>(const OneProduct&, cudaStream_t);
template Status launch_one<DType::Q5_K, DType::Q6_K>(const OneProduct&, cudaStream_t);

}  // namespace ktx::kernels

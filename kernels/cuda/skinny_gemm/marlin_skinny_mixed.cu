// The kernel of a batch for q, k and v of two formats, as the usual mixes have them.
#include "kernels/cuda/skinny_gemm/marlin_skinny.cuh"

namespace ktx::kernels {

template Status launch_batch<DType::Q4_K, DType::Q6_K>(const BatchProduct&, cudaStream_t);
template Status launch_batch<DType::Q5_K, DType::Q6_K>(const BatchProduct&, cudaStream_t);

}  // namespace ktx::kernels

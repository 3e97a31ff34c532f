// Which kernel template serves a marlin product.
#include "kernels/cuda/cuda_launch.cuh"
#include "kernels/cuda/marlin_products.cuh"

namespace ktx::kernels {

template <DType kType>
Status launch_few_type(const MarlinProduct& p, cudaStream_t stream);
template <DType kType>
Status launch_many_type(const MarlinProduct& p, cudaStream_t stream);

Status launch_marlin_few(DType dtype, const MarlinProduct& p, cudaStream_t stream) {
  return for_marlin_type<Status>(dtype, Error{"not a format of marlin weights"},
                                 [&]<DType kType>() { return launch_few_type<kType>(p, stream); });
}

Status launch_marlin_many(DType dtype, const MarlinProduct& p, cudaStream_t stream) {
  return for_marlin_type<Status>(dtype, Error{"not a format of marlin weights"},
                                 [&]<DType kType>() { return launch_many_type<kType>(p, stream); });
}

// 32 tokens of the widest format (Q8_0) need 168 KiB, of the others at most 138.
bool marlin_many_runs(DType dtype) {
  const int need = dtype == DType::Q8_0 ? 172 * 1024 : 140 * 1024;
  return compute_capability() >= 80 && shared_memory_limit() >= need;
}

}  // namespace ktx::kernels

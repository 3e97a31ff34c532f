// The persistent kernel for K formats: Q4_K and Q5_K, each with Q6_K beside it.
#include "kernels/cuda/persistent.cuh"

namespace ktx::kernels {

int attention_phase_bytes_of(const AttentionAttrs& attrs, int splits) {
  return attention_phase_bytes(attrs, splits);
}

template Status launch_persistent<DType::Q4_K, DType::Q6_K>(const PersistentArgs&, int,
                                                            cudaStream_t);
template Status launch_persistent<DType::Q5_K, DType::Q6_K>(const PersistentArgs&, int,
                                                            cudaStream_t);

}  // namespace ktx::kernels

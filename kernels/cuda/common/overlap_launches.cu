#include "kernels/cuda/common/cuda_launch.cuh"
#include "lib/support/env.h"

namespace ktx::kernels {

bool overlap_launches() {
  static const bool allowed = env("KTX_CUDA_OVERLAP").value_or("1") != "0";
  return allowed && compute_capability() >= 90;
}

}  // namespace ktx::kernels

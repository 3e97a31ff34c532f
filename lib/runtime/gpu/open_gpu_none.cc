// open_gpu for programs built without CUDA.
#ifndef KTX_HAS_CUDA
#include "lib/runtime/gpu/gpu.h"

namespace ktx::runtime {

Result<std::unique_ptr<Gpu>> open_gpu(int) {
  return Error{
      "this ktx-run was built without GPU support; build it where nvcc of CUDA 12 or newer is "
      "installed (-DKTX_CUDA=on), or compile the plan for the CPU (rules/cpu-only.yaml)"};
}

}  // namespace ktx::runtime
#endif

// Errors of the CUDA runtime as Status.
#pragma once

#include <cuda_runtime_api.h>

#include <string>

#include "lib/support/result.h"

namespace ktx::runtime {

// "copying to the GPU: out of memory (cudaErrorMemoryAllocation)", with what to do where
// that is known.
Error cuda_error(cudaError_t code, const std::string& doing);

inline Status cuda_status(cudaError_t code, const char* doing) {
  if (code == cudaSuccess) return {};
  return cuda_error(code, doing);
}

}  // namespace ktx::runtime

// Choosing the next token on the GPU, so that a step's logits need not travel.
//
//   argmax: ids[r] = the number of the largest logit of row r (the lowest of equal ones;
//           NaN counts as -infinity), logprobs[r] = logit - log sum exp of the row.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/cuda_stream.h"
#include "lib/support/result.h"

namespace ktx::kernels {

struct CudaArgmaxArgs {
  const float* logits = nullptr;  // [rows, vocabulary]
  int64_t logits_stride = 0;
  int64_t rows = 0;
  int64_t vocabulary = 0;
  int32_t* ids = nullptr;     // [rows]
  float* logprobs = nullptr;  // [rows] or null
};
Status launch_argmax(const CudaArgmaxArgs& args, CudaStream stream);

}  // namespace ktx::kernels

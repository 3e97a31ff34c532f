// State-space layers (Mamba-2) on a GPU. Equations: StateSpaceAttrs (lib/ops/step_attrs.h); scalar
// reference: kernels/state_space.
#pragma once

#include <cstdint>

#include "kernels/cuda/common/cuda_stream.h"
#include "kernels/cuda/common/cuda_texts.h"
#include "lib/ops/step_attrs.h"
#include "lib/support/result.h"

namespace ktx::kernels {

// gpu_state_space_takes(head_dim, state_dim) (kernels/gpu/gpu_limits.h); rows of x and y begin at
// multiples of 16 bytes, and so does the state of every slot. Results depend on nothing but the
// text: neither on how it is cut into passes or segments, nor on other texts.
struct CudaStateSpaceArgs {
  const float* x = nullptr;  // [T, values | input | output]
  int64_t x_stride = 0;
  const float* dt = nullptr;  // [T, heads]
  int64_t dt_stride = 0;
  float* y = nullptr;  // [T, heads * head_dim]
  int64_t y_stride = 0;
  const float* decay = nullptr;    // [heads]
  const float* skip = nullptr;     // [heads]
  const float* dt_bias = nullptr;  // [heads]
  CudaTexts texts;
  CudaStates states;
  StateSpaceAttrs attrs;
};
Status launch_state_space(const CudaStateSpaceArgs& args, CudaStream stream);

}  // namespace ktx::kernels

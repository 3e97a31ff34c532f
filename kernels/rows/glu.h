// The arithmetic of gated linear units, once for CPU and GPU: of the op `glu`, and of kernels that
// compute gate and up together. Included by row_ops.h and by cuda/ only.
#pragma once

#include <cmath>

#include "kernels/cpu_and_gpu.h"
#include "lib/formats/step_attrs.h"

namespace ktx::kernels {

// The exponential in double on a CPU: other kernels are held to this one. On a GPU the fast one.
KTX_CPU_AND_GPU inline float row_sigmoid(float x) {
#ifdef __CUDA_ARCH__
  return 1 / (1 + __expf(-x));
#else
  return static_cast<float>(1 / (1 + std::exp(-double{x})));
#endif
}
KTX_CPU_AND_GPU inline float row_silu(float x) {
#ifdef __CUDA_ARCH__
  return x / (1 + __expf(-x));
#else
  return static_cast<float>(double{x} / (1 + std::exp(-double{x})));
#endif
}

// A gated linear unit (GluAttrs).
KTX_CPU_AND_GPU inline float row_glu(const GluAttrs& a, float gate, float up) {
  if (a.limit > 0) {
    gate = gate > a.limit ? a.limit : gate;
    up = up > a.limit ? a.limit : up < -a.limit ? -a.limit : up;
  }
  if (a.activation == static_cast<int32_t>(Activation::Silu)) return row_silu(gate) * up;
  if (a.activation == static_cast<int32_t>(Activation::GeluTanh)) {
    return gate * row_sigmoid(1.5957691216f * (gate + 0.044715f * gate * gate * gate)) * up;
  }
  if (a.activation == static_cast<int32_t>(Activation::Sigmoid)) return row_sigmoid(gate) * up;
  return gate * row_sigmoid(1.702f * gate) * (up + 1);
}

}  // namespace ktx::kernels

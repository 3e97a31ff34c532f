// The arithmetic of units, once for CPU and GPU: of gated ones (the op `glu`, and kernels that
// compute gate and up together) and of those without a gate (`activate`). Included by row_ops.h and
// by cuda/ only.
#pragma once

#include <cmath>

#include "kernels/cpu_and_gpu.h"
#include "lib/ops/step_attrs.h"

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

KTX_CPU_AND_GPU inline float row_softplus(float x) {
  return x > 20 ? x : log1pf(expf(x));
}

// limit * tanh(x / limit); limit = 0: x.
KTX_CPU_AND_GPU inline float row_bent(float x, float limit) {
  return limit == 0 ? x : limit * tanhf(x / limit);
}

// A gated linear unit (GluAttrs).
KTX_CPU_AND_GPU inline float row_glu(const GluAttrs& a, float gate, float up) {
  if (a.activation == static_cast<int32_t>(Activation::Situ)) {
    return row_bent(gate, a.limit) * row_sigmoid(gate) * row_bent(up, a.up_limit);
  }
  if (a.activation == static_cast<int32_t>(Activation::SiluUpTo)) gate = row_silu(gate);
  if (a.limit > 0) {
    gate = gate > a.limit ? a.limit : gate;
    up = up > a.limit ? a.limit : up < -a.limit ? -a.limit : up;
  }
  if (a.activation == static_cast<int32_t>(Activation::Silu)) return row_silu(gate) * up;
  if (a.activation == static_cast<int32_t>(Activation::GeluTanh)) {
    return gate * row_sigmoid(1.5957691216f * (gate + 0.044715f * gate * gate * gate)) * up;
  }
  if (a.activation == static_cast<int32_t>(Activation::Sigmoid)) return row_sigmoid(gate) * up;
  if (a.activation == static_cast<int32_t>(Activation::Product) ||
      a.activation == static_cast<int32_t>(Activation::SiluUpTo)) {
    return gate * up;
  }
  if (a.activation == static_cast<int32_t>(Activation::Relu)) return (gate < 0 ? 0 : gate) * up;
  return gate * row_sigmoid(1.702f * gate) * (up + 1);
}

// The activation of a unit without a gate (ActivateAttrs).
KTX_CPU_AND_GPU inline float row_unit(const ActivateAttrs& a, float x) {
  const float positive = x < 0 ? 0 : x;
  if (a.function == static_cast<int32_t>(UnitFunction::Silu)) return row_silu(x);
  if (a.function == static_cast<int32_t>(UnitFunction::GeluTanh)) {
    return x * row_sigmoid(1.5957691216f * (x + 0.044715f * x * x * x));
  }
  if (a.function == static_cast<int32_t>(UnitFunction::GeluErf)) {
    return 0.5f * x * (1 + erff(0.70710678f * x));
  }
  if (a.function == static_cast<int32_t>(UnitFunction::Relu)) return positive;
  if (a.function == static_cast<int32_t>(UnitFunction::ReluSquared)) return positive * positive;
  if (a.function == static_cast<int32_t>(UnitFunction::Xielu)) {
    const float bent = x > 0 ? a.rise * x * x : a.fall * (expm1f(x < a.limit ? x : a.limit) - x);
    return bent + a.slope * x;
  }
  if (a.function == static_cast<int32_t>(UnitFunction::Clamp)) {
    return x > a.limit ? a.limit : x < -a.limit ? -a.limit : x;
  }
  if (a.function == static_cast<int32_t>(UnitFunction::SignedRoot)) {
    const float size = x < 0 ? -x : x;
    const float root = sqrtf(size < kLeastRooted ? kLeastRooted : size);
    return x < 0 ? -root : x == 0 ? 0.0f : root;
  }
  return tanhf(x);
}

}  // namespace ktx::kernels

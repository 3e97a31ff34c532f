// What a token does to a value head's matrix (as kernels/delta_net/delta_gates.h).
#pragma once

#include "kernels/cuda/delta_net/cuda_delta_net.h"

namespace ktx::kernels {

__device__ __forceinline__ float softplus(float x) {
  return x > 20 ? x : log1pf(expf(x));
}

// The part of the change, and the logarithm of the part of the matrix that is kept.
struct Gates {
  float log_kept = 0, strength = 0;
};

// By channel: none of log_kept.
template <bool kByChannel>
__device__ __forceinline__ Gates gates_of(const CudaDeltaRuleArgs& args, int head, int64_t row) {
  if constexpr (kByChannel) return {0, 1 / (1 + expf(-args.b[row * args.b_stride + head]))};
  const int repeats = args.attrs.value_heads / args.attrs.key_heads;
  const float* const b_row = args.b + row * args.b_stride;
  // By key head: the bs of its value heads, then their as.
  const int joined = head / repeats * 2 * repeats + head % repeats;
  const float b = args.a ? b_row[head] : b_row[joined];
  const float a = args.a ? args.a[row * args.a_stride + head] : b_row[joined + repeats];
  return {args.decay[head] * softplus(a + args.dt_bias[head]), 1 / (1 + expf(-b))};
}

}  // namespace ktx::kernels

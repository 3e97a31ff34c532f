// What a token does to a value head's matrix (as kernels/delta_net/delta_gates.h).
#pragma once

#include "kernels/cuda/common/state_matrix.cuh"
#include "kernels/cuda/delta_net/cuda_delta_net.h"

namespace ktx::kernels {

// The part of the change, and the logarithm of the part of the matrix that is kept.
struct Gates {
  float log_kept = 0, strength = 0;
};

// What they are made of.
struct GateInputs {
  float b = 0, a = 0, dt_bias = 0, decay = 0;
};
__device__ __forceinline__ GateInputs gate_inputs(const CudaDeltaRuleArgs& args, int head,
                                                  int64_t row) {
  const int repeats = args.attrs.value_heads / args.attrs.key_heads;
  const float* const b_row = args.b + row * args.b_stride;
  // Joined, by key head: the bs of its value heads, then their as.
  const int joined = head / repeats * 2 * repeats + head % repeats;
  return {args.a ? b_row[head] : b_row[joined],
          args.a ? args.a[row * args.a_stride + head] : b_row[joined + repeats], args.dt_bias[head],
          args.decay[head]};
}
__device__ __forceinline__ Gates gates_of(const GateInputs& in) {
  return {in.decay * softplus(in.a + in.dt_bias), 1 / (1 + expf(-in.b))};
}

// By channel: none of log_kept.
template <bool kByChannel>
__device__ __forceinline__ Gates gates_of(const CudaDeltaRuleArgs& args, int head, int64_t row) {
  if constexpr (kByChannel) return {0, 1 / (1 + expf(-args.b[row * args.b_stride + head]))};
  return gates_of(gate_inputs(args, head, row));
}

}  // namespace ktx::kernels

// What a token does to a value head's matrix, and where its parts are in the rows.
#pragma once

#include "kernels/delta_net/delta_net.h"

namespace ktx::kernels {
namespace {  // one copy per file: see simd/README.md

inline int64_t key_head_of(const DeltaRuleAttrs& a, int64_t head) {
  return a.tiled != 0 ? head % a.key_heads : head / (a.value_heads / a.key_heads);
}

struct DeltaGates {
  float kept = 0;      // of the matrix
  float strength = 0;  // of the change
};

inline DeltaGates delta_gates(const DeltaRuleArgs& args, int64_t token) {
  const int64_t repeats = args.attrs.value_heads / args.attrs.key_heads;
  const float* const b_row = args.b + token * args.b_stride;
  // By key head: the bs of its value heads, then their as.
  const int64_t joined = args.head / repeats * 2 * repeats + args.head % repeats;
  const float b = args.a != nullptr ? b_row[args.head] : b_row[joined];
  const float a =
      args.a != nullptr ? args.a[token * args.a_stride + args.head] : b_row[joined + repeats];
  const float rate = a + args.dt_bias[args.head];
  // softplus; above 20 it is its argument to the last bit.
  const float softplus = rate > 20 ? rate : __builtin_log1pf(__builtin_expf(rate));
  return {__builtin_expf(args.decay[args.head] * softplus), 1 / (1 + __builtin_expf(-b))};
}

}  // namespace
}  // namespace ktx::kernels

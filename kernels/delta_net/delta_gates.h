// What a token does to a value head's matrix, and where its parts are in the rows.
#pragma once

#include "kernels/delta_net/delta_net.h"

namespace ktx::kernels {
namespace {  // one copy per file: see simd/README.md

inline int64_t key_head_of(const DeltaRuleAttrs& a, int64_t head) {
  return a.tiled != 0 ? head % a.key_heads : head / (a.value_heads / a.key_heads);
}

struct DeltaGates {
  float kept = 0;      // of the matrix; by channel: 1, see kept_channels
  float strength = 0;  // of the change
};

// softplus; above 20 it is its argument to the last bit.
inline float softplus(float x) {
  return x > 20 ? x : __builtin_log1pf(__builtin_expf(x));
}

inline DeltaGates delta_gates(const DeltaRuleArgs& args, int64_t token) {
  if (args.attrs.by_channel != 0) {
    return {1, 1 / (1 + __builtin_expf(-args.b[token * args.b_stride + args.head]))};
  }
  const int64_t repeats = args.attrs.value_heads / args.attrs.key_heads;
  const float* const b_row = args.b + token * args.b_stride;
  // By key head: the bs of its value heads, then their as.
  const int64_t joined = args.head / repeats * 2 * repeats + args.head % repeats;
  const float b = args.a != nullptr ? b_row[args.head] : b_row[joined];
  const float a =
      args.a != nullptr ? args.a[token * args.a_stride + args.head] : b_row[joined + repeats];
  const float rate = softplus(a + args.dt_bias[args.head]);
  return {__builtin_expf(args.decay[args.head] * rate), 1 / (1 + __builtin_expf(-b))};
}

}  // namespace
}  // namespace ktx::kernels

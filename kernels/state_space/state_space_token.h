// What a token does to a head's matrix, and where its parts are in the rows.
#pragma once

#include "kernels/state_space/state_space.h"

namespace ktx::kernels {
namespace {  // one copy per file: see simd/README.md

struct StateSpaceToken {
  const float *value = nullptr, *in = nullptr, *out = nullptr;
  float step = 0, kept = 0;
};

inline StateSpaceToken state_space_token(const StateSpaceArgs& args, int64_t t) {
  const StateSpaceAttrs& a = args.attrs;
  const float* const x = args.x + t * args.x_stride;
  const int64_t group = args.head / (a.heads / a.groups);
  const float rate = args.dt[t * args.dt_stride + args.head] + args.dt_bias[args.head];
  // softplus; above 20 it is its argument to the last bit.
  float step = rate > 20 ? rate : __builtin_log1pf(__builtin_expf(rate));
  if (step < a.step_min) step = a.step_min;
  if (a.step_max > 0 && step > a.step_max) step = a.step_max;
  return {x + args.head * a.head_dim, x + a.width() + group * a.state_dim,
          x + a.width() + (a.groups + group) * a.state_dim, step,
          __builtin_expf(args.decay[args.head] * step)};
}

}  // namespace
}  // namespace ktx::kernels

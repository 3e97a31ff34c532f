// The selective scan over a vector policy (simd/README.md): 16 channels at once, whose states stay
// in the first cache over the tokens. Included by selective_scan_<isa>.cc only.
#pragma once

#include "kernels/simd/exp.h"
#include "kernels/simd/part16.h"
#include "kernels/state_space/selective_scan.h"

namespace ktx::kernels {
namespace {

// The n channels from c on, n <= 16.
template <class V>
KTX_INLINE void scan_channels(const SelectiveScanArgs& a, int64_t c, int64_t n) {
  using F = typename V::F;
  const int64_t channels = a.attrs.channels, rows = a.attrs.state_dim;
  const F skip = load16<V>(a.skip + c, n);
  const float* from = a.state_in;
  for (int64_t t = 0; t < a.tokens; ++t, from = a.state_out) {
    const float* in = a.in_out + t * a.in_out_stride;
    const float* out = in + rows;
    const F value = load16<V>(a.x + t * a.x_stride + c, n);
    const F step = softplus16<V>(load16<V>(a.dt + t * a.dt_stride + c, n));
    const F change = V::mul(step, value);
    F read = V::zero();
    for (int64_t i = 0; i < rows; ++i) {
      const int64_t at = i * channels + c;
      const F kept = exp16<V>(V::mul(load16<V>(a.decay + at, n), step));
      F m = from != nullptr ? load16<V>(from + at, n) : V::zero();
      m = V::fma(V::set1(in[i]), change, V::mul(m, kept));
      store16<V>(a.state_out + at, n, m);
      read = V::fma(V::set1(out[i]), m, read);
    }
    store16<V>(a.y + t * a.y_stride + c, n, V::fma(skip, value, read));
  }
}

template <class V>
void selective_scan(const SelectiveScanArgs& a) {
  int64_t c = a.channel_begin;
  for (; c + 16 <= a.channel_end; c += 16) scan_channels<V>(a, c, 16);
  if (c < a.channel_end) scan_channels<V>(a, c, a.channel_end - c);
}

}  // namespace
}  // namespace ktx::kernels

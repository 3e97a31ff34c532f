// The definition: one loop a formula.
#include <cmath>

#include "kernels/state_space/selective_scan.h"

namespace ktx::kernels {

void selective_scan_scalar(const SelectiveScanArgs& a);

void selective_scan_scalar(const SelectiveScanArgs& a) {
  const int64_t channels = a.attrs.channels, rows = a.attrs.state_dim;
  for (int64_t c = a.channel_begin; c < a.channel_end; ++c) {
    for (int64_t i = 0; i < rows; ++i) {
      const int64_t at = i * channels + c;
      a.state_out[at] = a.state_in != nullptr ? a.state_in[at] : 0;
    }
    for (int64_t t = 0; t < a.tokens; ++t) {
      const float* in = a.in_out + t * a.in_out_stride;
      const float* out = in + rows;
      const float rate = a.dt[t * a.dt_stride + c], value = a.x[t * a.x_stride + c];
      // softplus; above 20 it is its argument to the last bit.
      const float step = rate > 20 ? rate : std::log1p(std::exp(rate));
      float read = 0;
      for (int64_t i = 0; i < rows; ++i) {
        float& m = a.state_out[i * channels + c];
        m = m * std::exp(a.decay[i * channels + c] * step) + in[i] * (step * value);
        read += out[i] * m;
      }
      a.y[t * a.y_stride + c] = read + a.skip[c] * value;
    }
  }
}

}  // namespace ktx::kernels

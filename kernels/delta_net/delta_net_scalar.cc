// The definition of both ops: one loop a formula.
#include <cmath>

#include "kernels/delta_net/delta_gates.h"
#include "kernels/delta_net/delta_net.h"
#include "lib/formats/shape_limits.h"

namespace ktx::kernels {

void causal_conv_scalar(const CausalConvArgs& a);
void delta_rule_scalar(const DeltaRuleArgs& a);

void causal_conv_scalar(const CausalConvArgs& a) {
  const int64_t past = a.attrs.past(), channels = a.attrs.channels;
  for (int64_t c = a.channel_begin; c < a.channel_end; ++c) {
    // The input at token t; before this pass from the state.
    const auto input = [&](int64_t t) {
      if (t >= 0) return a.x[t * a.x_stride + c];
      return a.state_in != nullptr ? a.state_in[(past + t) * channels + c] : 0.0f;
    };
    for (int64_t t = 0; t < a.tokens; ++t) {
      float sum = 0;
      for (int64_t j = 0; j < a.attrs.taps; ++j) {
        sum += a.weight[j * channels + c] * input(t - past + j * a.attrs.dilation);
      }
      if (a.bias != nullptr) sum += a.bias[c];
      a.y[t * a.y_stride + c] = a.attrs.plain != 0 ? sum : sum / (1 + std::exp(-sum));
    }
    for (int64_t j = 0; j < past; ++j) {
      a.state_out[j * channels + c] = input(a.tokens - past + j);
    }
  }
}

void delta_rule_scalar(const DeltaRuleArgs& a) {
  const int64_t dim = a.attrs.head_dim;
  const int64_t key_head = key_head_of(a.attrs, a.head);
  float* const matrix = a.state_out + a.head * dim * dim;
  for (int64_t row = 0; row < dim; ++row) {
    for (int64_t column = a.column_begin; column < a.column_end; ++column) {
      matrix[row * dim + column] =
          a.state_in != nullptr ? a.state_in[(a.head * dim + row) * dim + column] : 0;
    }
  }
  for (int64_t t = 0; t < a.tokens; ++t) {
    const float* const x = a.x + t * a.x_stride;
    float q[kMaxDeltaHead], k[kMaxDeltaHead];
    const auto normalise = [&](const float* from, float scale, float* to) {
      double squares = 0;
      for (int64_t i = 0; i < dim; ++i) squares += double{from[i]} * from[i];
      const auto factor = static_cast<float>(scale / std::sqrt(squares + 1e-6));
      for (int64_t i = 0; i < dim; ++i) to[i] = from[i] * factor;
    };
    normalise(x + key_head * dim, 1 / std::sqrt(static_cast<float>(dim)), q);
    normalise(x + (a.attrs.key_heads + key_head) * dim, 1, k);
    const float* const v = x + (int64_t{2} * a.attrs.key_heads + a.head) * dim;
    const DeltaGates gates = delta_gates(a, t);
    float kept[kMaxDeltaHead];  // of each row
    for (int64_t row = 0; row < dim; ++row) {
      if (a.attrs.by_channel == 0) {
        kept[row] = gates.kept;
        continue;
      }
      const int64_t at = a.head * dim + row;
      const float rate = a.a[t * a.a_stride + at] + a.dt_bias[at];
      kept[row] =
          a.attrs.lower_bound < 0
              ? std::exp(a.attrs.lower_bound / (1 + std::exp(-std::abs(a.decay[a.head]) * rate)))
              : std::exp(a.decay[a.head] * softplus(rate));
    }
    for (int64_t column = a.column_begin; column < a.column_end; ++column) {
      float known = 0;
      for (int64_t row = 0; row < dim; ++row) {
        matrix[row * dim + column] *= kept[row];
        known += k[row] * matrix[row * dim + column];
      }
      const float change = gates.strength * (v[column] - known);
      float read = 0;
      for (int64_t row = 0; row < dim; ++row) {
        matrix[row * dim + column] += k[row] * change;
        read += q[row] * matrix[row * dim + column];
      }
      a.y[t * a.y_stride + a.head * dim + column] = read;
    }
  }
}

}  // namespace ktx::kernels

// Layers that keep a state: short convolutions, delta nets, state spaces.
#include "lib/reference/interpreter.h"

#include <algorithm>
#include <cmath>

#include "lib/reference/arithmetic.h"

namespace ktx::reference {

using ir::Role;

// Queries, keys and values in front of their convolution.
Interpreter::Vector Interpreter::delta_inputs(const ir::Module& module,
                                              const ir::DeltaNetInfo& info,
                                              std::span<const float> x) const {
  if (!info.by_channel) return linear(need(module, Role::DeltaQkvProj), x);
  Vector all;
  for (const Role role : {Role::QProj, Role::KProj, Role::VProj}) {
    const Vector part = linear(need(module, role), x);
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

// silu of the weighted sum of each channel's last inputs.
Interpreter::Vector Interpreter::convolve(const ir::Module& module, int32_t taps, Vector input,
                                          bool plain) {
  std::vector<Vector>& inputs = caches_[module.layer].inputs;
  Vector out(input.size());
  inputs.push_back(std::move(input));
  const auto joined = weights(module, "conv");
  Vector weight(joined.begin(), joined.end());
  for (const char* part : {"conv_q", "conv_k", "conv_v"}) {
    const auto own = weights(module, part);
    weight.insert(weight.end(), own.begin(), own.end());
  }
  const auto bias = weights(module, "conv_bias");
  for (size_t channel = 0; channel < out.size(); ++channel) {
    double sum = bias.empty() ? 0 : bias[channel];
    for (int32_t back = 0; back < taps && back < std::ssize(inputs); ++back) {
      sum += static_cast<double>(weight[channel * taps + taps - 1 - back]) *
             inputs[inputs.size() - 1 - back][channel];
    }
    out[channel] = static_cast<float>(plain ? sum : sum / (1 + std::exp(-sum)));
  }
  return out;
}

Interpreter::Vector Interpreter::short_conv(const ir::Module& module, std::span<const float> x) {
  const auto& info = std::get<ir::ShortConvInfo>(module.info);
  const auto width = static_cast<size_t>(info.width);
  const Vector projected = linear(need(module, Role::ShortConvProj), x);
  Vector gated(width);
  for (size_t i = 0; i < width; ++i) gated[i] = projected[i] * projected[2 * width + i];
  Vector out = convolve(module, info.taps, std::move(gated), true);
  for (size_t i = 0; i < width; ++i) out[i] *= projected[width + i];
  return linear(need(module, Role::OProj), out);
}

// The gated delta rule, as DeltaRuleAttrs says it.
Interpreter::Vector Interpreter::delta_net(const ir::Module& module, std::span<const float> x) {
  const auto& info = std::get<ir::DeltaNetInfo>(module.info);
  const int32_t dim = info.head_dim, repeats = info.value_heads / info.key_heads;
  const Vector mixed = convolve(module, info.taps, delta_inputs(module, info, x));
  const ir::Module* const whole_gate = graph_.child(module, Role::DeltaGateProj);
  const Vector gate = whole_gate != nullptr ? linear(*whole_gate, x)
                                            : linear(need(module, Role::DeltaGateBProj),
                                                     linear(need(module, Role::DeltaGateAProj), x));
  Vector b, a;
  if (info.by_channel) {
    const ir::Module& forget = need(module, Role::DeltaForget);
    b = linear(need(module, Role::DeltaBProj), x);
    const ir::Module* const whole = graph_.child(forget, Role::DeltaAProj);
    a = whole != nullptr ? linear(*whole, x)
                         : linear(need(forget, Role::DeltaForgetBProj),
                                  linear(need(forget, Role::DeltaForgetAProj), x));
  } else if (const ir::Module* both = graph_.child(module, Role::DeltaBaProj)) {
    const Vector ba = linear(*both, x);
    for (size_t i = 0; i < ba.size(); ++i) (i / repeats % 2 == 0 ? b : a).push_back(ba[i]);
  } else {
    b = linear(need(module, Role::DeltaBProj), x);
    a = linear(need(module, Role::DeltaAProj), x);
  }
  const auto decay = weights(module, "decay"), dt_bias = weights(module, "dt_bias");
  std::vector<double>& matrices = caches_[module.layer].matrices;
  matrices.resize(static_cast<size_t>(info.value_heads) * dim * dim);
  const auto normalised = [&](const float* from) {
    std::vector<double> out(from, from + dim);
    const double length = std::sqrt(dot(from, from, static_cast<size_t>(dim)) + 1e-6);
    for (double& value : out) value /= length;
    return out;
  };
  Vector out(static_cast<size_t>(info.width()));
  for (int32_t head = 0; head < info.value_heads; ++head) {
    const int32_t key_head = info.tiled ? head % info.key_heads : head / repeats;
    const std::vector<double> q = normalised(&mixed[key_head * dim]);
    const std::vector<double> k = normalised(&mixed[(info.key_heads + key_head) * dim]);
    const float* v = &mixed[(2 * info.key_heads + head) * dim];
    double* matrix = &matrices[static_cast<size_t>(head) * dim * dim];
    const double strength = 1 / (1 + std::exp(-double{b[head]}));
    for (int32_t row = 0; row < dim; ++row) {
      const size_t at = info.by_channel ? head * dim + row : head;
      const double rate = double{a[at]} + dt_bias[at];
      const double kept =
          info.lower_bound < 0
              ? std::exp(info.lower_bound / (1 + std::exp(-std::abs(decay[head]) * rate)))
              : std::exp(decay[head] * std::log1p(std::exp(rate)));
      for (int32_t column = 0; column < dim; ++column) matrix[row * dim + column] *= kept;
    }
    for (int32_t column = 0; column < dim; ++column) {
      double known = 0;
      for (int32_t row = 0; row < dim; ++row) known += k[row] * matrix[row * dim + column];
      const double change = strength * (v[column] - known);
      double read = 0;
      for (int32_t row = 0; row < dim; ++row) {
        matrix[row * dim + column] += k[row] * change;
        read += q[row] * matrix[row * dim + column];
      }
      out[head * dim + column] = static_cast<float>(read / std::sqrt(dim));
    }
  }
  out = norm(need(module, Role::DeltaNorm), out);
  for (size_t i = 0; i < out.size(); ++i) {
    const bool sigmoid = info.by_channel || info.sigmoid_gate;
    out[i] *= (sigmoid ? 1 : gate[i]) / (1 + std::exp(-gate[i]));
  }
  return linear(need(module, Role::OProj), out);
}

// A state space, as StateSpaceAttrs says it.
Interpreter::Vector Interpreter::state_space(const ir::Module& module, std::span<const float> x) {
  const auto& info = std::get<ir::StateSpaceInfo>(module.info);
  const size_t width = info.width(), channels = info.channels();
  const size_t dim = info.head_dim, rows = info.state_dim;
  const Vector projected = linear(need(module, Role::SsmInProj), x);
  const auto first = projected.begin() + static_cast<std::ptrdiff_t>(width);
  const Vector mixed =
      convolve(module, info.taps, Vector(first, first + static_cast<std::ptrdiff_t>(channels)));
  const auto decay = weights(module, "decay"), skip = weights(module, "skip");
  const auto dt_bias = weights(module, "dt_bias");
  std::vector<double>& matrices = caches_[module.layer].matrices;
  matrices.resize(width * rows);
  Vector out(width);
  for (size_t head = 0; head < static_cast<size_t>(info.heads); ++head) {
    const size_t group = head / (info.heads / info.groups);
    const float* const in = &mixed[width + group * rows];
    const float* const read = in + info.groups * rows;
    double step = std::log1p(std::exp(double{projected[width + channels + head]} + dt_bias[head]));
    step = std::max<double>(step, info.step_min);
    if (info.step_max > 0) step = std::min<double>(step, info.step_max);
    const double kept = std::exp(decay[head] * step);
    for (size_t c = 0; c < dim; ++c) {
      const double value = mixed[head * dim + c];
      double sum = skip[head] * value;
      for (size_t row = 0; row < rows; ++row) {
        double& m = matrices[(head * rows + row) * dim + c];
        m = m * kept + in[row] * step * value;
        sum += read[row] * m;
      }
      out[head * dim + c] = static_cast<float>(sum);
    }
  }
  if (info.norm_first) out = optional_norm(module, Role::SsmNorm, std::move(out));
  for (size_t i = 0; i < width; ++i) out[i] *= projected[i] / (1 + std::exp(-projected[i]));
  if (!info.norm_first) out = optional_norm(module, Role::SsmNorm, std::move(out));
  return linear(need(module, Role::OProj), out);
}

Interpreter::Vector Interpreter::selective_scan(const ir::Module& module,
                                                std::span<const float> x) {
  const auto& info = std::get<ir::SelectiveScanInfo>(module.info);
  const size_t channels = info.channels, state = info.state_dim, rank = info.step_rank;
  const Vector projected = linear(need(module, Role::SsmInProj), x);
  const auto middle = projected.begin() + info.channels;
  const Vector mixed = convolve(module, info.taps, Vector(projected.begin(), middle));
  const Vector params = linear(need(module, Role::SsmParamsProj), mixed);
  const auto part = [&](Role role, size_t first, size_t count) {
    const auto own = std::span(params).subspan(first, count);
    return optional_norm(module, role, Vector(own.begin(), own.end()));
  };
  const Vector steps = linear(need(module, Role::SsmStepProj), part(Role::SsmStepNorm, 0, rank));
  const Vector in = part(Role::SsmInputNorm, rank, state);
  const Vector read = part(Role::SsmOutputNorm, rank + state, state);
  const auto decay = weights(module, "decay"), skip = weights(module, "skip");
  std::vector<double>& matrices = caches_[module.layer].matrices;
  matrices.resize(channels * state);
  Vector out(channels);
  for (size_t c = 0; c < channels; ++c) {
    const double step = std::log1p(std::exp(double{steps[c]})), value = mixed[c];
    double sum = skip[c] * value;
    for (size_t i = 0; i < state; ++i) {
      double& m = matrices[c * state + i];
      m = m * std::exp(decay[c * state + i] * step) + in[i] * step * value;
      sum += read[i] * m;
    }
    const double gate = projected[channels + c];
    out[c] = static_cast<float>(sum * gate / (1 + std::exp(-gate)));
  }
  return linear(need(module, Role::OProj), out);
}

}  // namespace ktx::reference

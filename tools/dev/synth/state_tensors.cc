// Delta nets, state spaces and short convolutions.
#include "tools/dev/synth/model_tensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace ktx::synth {

void add_delta_net(const ModelShape& s, TensorMaker& t, int64_t layer, const std::string& blk) {
  t.matrix(blk + "attn_qkv.weight", layer, {s.hidden, s.delta_channels()});
  t.matrix(blk + "attn_gate.weight", layer, {s.hidden, s.delta_width()});
  if (s.family->has_role(ir::Role::DeltaBaProj)) {
    t.matrix(blk + "ssm_ba.weight", layer, {s.hidden, 2 * s.delta_value_heads});
  } else {
    t.matrix(blk + "ssm_beta.weight", layer, {s.hidden, s.delta_value_heads});
    t.matrix(blk + "ssm_alpha.weight", layer, {s.hidden, s.delta_value_heads});
  }
  t.noise(blk + "ssm_conv1d.weight", {s.delta_taps, s.delta_channels()},
          1 / std::sqrt(static_cast<float>(s.delta_taps)));
  // Heads forget at rates from 1 to 16, in steps of 0.001 to 0.1, as they are before training.
  const auto part = [last = std::max<int64_t>(s.delta_value_heads - 1, 1)](uint64_t head) {
    return static_cast<float>(head) / static_cast<float>(last);
  };
  t.values(blk + "ssm_a", {s.delta_value_heads}, [part](uint64_t h) { return -1 - 15 * part(h); });
  t.values(blk + "ssm_dt.bias", {s.delta_value_heads}, [part](uint64_t h) {
    return std::log(std::expm1(0.001f * std::pow(100.f, part(h))));  // softplus the other way
  });
  t.ones(blk + "ssm_norm.weight", s.delta_dim);
  t.matrix(blk + "ssm_out.weight", layer, {s.delta_width(), s.hidden}, kResidualSigma);
}

void add_state_space(const ModelShape& s, TensorMaker& t, int64_t layer, const std::string& blk) {
  const int64_t channels = s.space_channels(), heads = s.space_heads;
  t.matrix(blk + "ssm_in.weight", layer, {s.hidden, s.space_width() + channels + heads});
  t.noise(blk + "ssm_conv1d.weight", {s.space_taps, channels},
          1 / std::sqrt(static_cast<float>(s.space_taps)));
  if (s.flag("mamba_conv_bias").value_or(true)) t.noise(blk + "ssm_conv1d.bias", channels, 0.02f);
  t.values(blk + "ssm_a", {1, heads},
           [](uint64_t head) { return -1 - static_cast<float>(head % 16); });
  t.noise(blk + "ssm_d", {1, heads}, 0.1f, 1);
  t.noise(blk + "ssm_dt.bias", heads, 0.5f, -3);
  if (s.flag("mamba_rms_norm").value_or(true)) {
    t.noise(blk + "ssm_norm.weight", {s.space_width() / s.space_groups, s.space_groups}, 0.02f, 1);
  }
  t.matrix(blk + "ssm_out.weight", layer, {s.space_width(), s.hidden}, kResidualSigma);
}

void add_selective_scan(const ModelShape& s, TensorMaker& t, int64_t layer,
                        const std::string& blk) {
  const int64_t channels = s.scan_channels, state = s.space_state;
  t.matrix(blk + "ssm_in.weight", layer, {s.hidden, 2 * channels});
  t.noise(blk + "ssm_conv1d.weight", {s.space_taps, channels},
          1 / std::sqrt(static_cast<float>(s.space_taps)));
  if (s.flag("mamba_conv_bias").value_or(true)) t.noise(blk + "ssm_conv1d.bias", channels, 0.02f);
  t.matrix(blk + "ssm_x.weight", layer, {channels, s.scan_rank + 2 * state});
  t.norm(ir::Role::SsmStepNorm, layer, s.scan_rank);
  t.norm(ir::Role::SsmInputNorm, layer, state);
  t.norm(ir::Role::SsmOutputNorm, layer, state);
  t.matrix(blk + "ssm_dt.weight", layer, {s.scan_rank, channels});
  t.noise(blk + "ssm_dt.bias", channels, 0.05f, -3);
  // As before training: a state forgets at rates from 1 to the number of its numbers.
  t.values(blk + "ssm_a", {state, channels}, [state](uint64_t i) {
    return -1 - static_cast<float>(i % static_cast<uint64_t>(state));
  });
  t.noise(blk + "ssm_d", channels, 0.1f, 1);
  t.matrix(blk + "ssm_out.weight", layer, {channels, s.hidden}, kResidualSigma);
}

void add_short_conv(const ModelShape& s, TensorMaker& t, int64_t layer, const std::string& blk) {
  t.noise(blk + "shortconv.conv.weight", {s.conv_taps, s.hidden},
          1 / std::sqrt(static_cast<float>(s.conv_taps)));
  t.matrix(blk + "shortconv.in_proj.weight", layer, {s.hidden, 3 * s.hidden});
  t.matrix(blk + "shortconv.out_proj.weight", layer, {s.hidden, s.hidden}, kResidualSigma);
}

void add_channel_delta_net(const ModelShape& s, TensorMaker& t, int64_t layer,
                           const std::string& blk) {
  const int64_t width = s.delta_width(), heads = s.delta_value_heads;
  for (const char* part : {"q", "k", "v"}) {
    t.matrix(fmt::format("{}attn_{}.weight", blk, part), layer, {s.hidden, width});
    t.noise(fmt::format("{}ssm_conv1d_{}.weight", blk, part), {s.delta_taps, 1, width, 1},
            1 / std::sqrt(static_cast<float>(s.delta_taps)));
  }
  const bool latent = s.family->has_role(ir::Role::DeltaForgetAProj);
  t.matrix(blk + "ssm_f_a.weight", layer, {s.hidden, latent ? s.delta_dim : width});
  if (latent) t.matrix(blk + "ssm_f_b.weight", layer, {s.delta_dim, width});
  t.matrix(blk + "ssm_beta.weight", layer, {s.hidden, heads});
  if (latent && s.family->has_role(ir::Role::DeltaGateProj)) {
    t.matrix(blk + "ssm_g.weight", layer, {s.hidden, width});
  } else {
    t.matrix(blk + "ssm_g_a.weight", layer, {s.hidden, latent ? s.delta_dim : width});
    if (latent) t.matrix(blk + "ssm_g_b.weight", layer, {s.delta_dim, width});
  }
  t.values(blk + "ssm_a", {1, heads, 1, 1}, [latent](uint64_t head) {
    const float size = 1 + static_cast<float>(head % 16);
    return latent ? -size : size / 16;
  });
  t.noise(blk + "ssm_dt.bias", width, 1, -3);
  t.ones(blk + "ssm_norm.weight", s.delta_dim);
  t.matrix(blk + "attn_output.weight", layer, {width, s.hidden}, kResidualSigma);
}

}  // namespace ktx::synth

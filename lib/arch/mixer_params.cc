// Mixers other than attention: delta nets, state spaces and short convolutions, and which layers
// have them.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "lib/arch/param_part.h"
#include "lib/formats/shape_limits.h"
#include "lib/support/strings.h"

namespace ktx::arch {
namespace {

class MixerParams : ParamPart {
 public:
  explicit MixerParams(const ParamPart& part) : ParamPart(part) {}

  // Their sizes, and the layers that have one: all but every n-th.
  void read_delta_nets() {
    ir::DeltaNetInfo& net = p_.delta_net;
    net.key_heads = small("linear_num_key_heads", 1, kMaxHeads);
    net.value_heads = small("linear_num_value_heads", 1, kMaxHeads);
    net.head_dim = small("linear_key_head_dim", 1, kMaxDeltaHead);
    net.taps = small("linear_conv_kernel_dim", 2, 64);
    net.tiled = family_.tiled_value_heads;
    read_output_gate(net);
    if (net.key_heads > 0 && net.value_heads % net.key_heads != 0) {
      in_.fail(fmt::format("'linear_num_key_heads' {} does not divide 'linear_num_value_heads' {}",
                           net.key_heads, net.value_heads));
    }
    const int64_t value_dim =
        in_.integer_or_null("linear_value_head_dim", 1, kMaxDeltaHead).value_or(net.head_dim);
    if (value_dim != net.head_dim) {
      in_.fail(
          fmt::format("'linear_value_head_dim' is {} and 'linear_key_head_dim' {}: different "
                      "ones are not known",
                      value_dim, net.head_dim));
    }
    const auto types = in_.config().strings("layer_types");
    if (types && types->size() != p_.shapes.size()) {
      in_.fail(fmt::format("'layer_types' has {} entries for {} layers", types->size(),
                           p_.shapes.size()));
      return;
    }
    const auto period = in_.integer_or_null("full_attention_interval", 1, kMaxLayers).value_or(4);
    for (size_t i = 0; i < p_.shapes.size(); ++i) {
      p_.shapes[i].delta_net =
          types ? (*types)[i] == "linear_attention" : (static_cast<int64_t>(i) + 1) % period != 0;
      if (!types || p_.shapes[i].delta_net || (*types)[i] == "full_attention") continue;
      in_.fail(fmt::format(
          "'layer_types' has '{}' for layer {}, expected full_attention or linear_attention",
          printable((*types)[i]), i));
      return;
    }
  }

  // Kimi delta attention, in the layers that the config lists by kind; the others' latent attention
  // has no positions.
  void read_channel_delta_nets() {
    ir::DeltaNetInfo& net = p_.delta_net;
    const bool own_heads = in_.has("linear_num_heads");
    net.key_heads = net.value_heads =
        small(own_heads ? "linear_num_heads" : "num_attention_heads", 1, kMaxHeads);
    net.head_dim = small("linear_head_dim", 1, kMaxDeltaHead);
    net.taps = small("linear_conv_kernel_dim", 2, 64);
    net.by_channel = true;
    read_decay_bound(net);
    for (LayerShape& shape : p_.shapes) shape.rotated = family_.has_role(ir::Role::Rotary);
    if (p_.q_lora_rank > 0 && !family_.has_role(ir::Role::QAProj)) {
      in_.fail("'q_lora_rank' is set: a query latent is not known here");
    }
    if (const auto types = in_.config().strings("layer_types"); types && !types->empty()) {
      if (types->size() != p_.shapes.size()) {
        return in_.fail(fmt::format("'layer_types' has {} entries for {} layers", types->size(),
                                    p_.shapes.size()));
      }
      for (size_t i = 0; i < p_.shapes.size(); ++i) {
        p_.shapes[i].delta_net = (*types)[i] == "linear_attention";
        if (p_.shapes[i].delta_net || (*types)[i] == "full_attention") continue;
        return in_.fail(fmt::format(
            "'layer_types' has '{}' for layer {}, expected full_attention or linear_attention",
            printable((*types)[i]), i));
      }
      return;
    }
    in_.fail(
        "'layer_types' is missing, and no 'linear_attn_config.kda_layers' says which layers have "
        "a delta net");
  }

  void read_decay_bound(ir::DeltaNetInfo& net) {
    if (!family_.has_config_key("kda_decay_bound")) return;
    // Where a flag says whether there is a bound, its size is known.
    const auto bound = family_.has_config_key("kda_safe_gate")
                           ? in_.number("kda_decay_bound", 1e-6, 1e3)
                           : in_.number_or_null("kda_decay_bound", 1e-6, 1e3).value_or(0);
    net.lower_bound = -static_cast<float>(bound);
    if (!in_.flag("kda_safe_gate").value_or(true)) {
      in_.fail("'kda_safe_gate' is false: decays without a bound are not known here");
    }
  }

  // Their sizes, and what each layer has.
  void read_state_spaces() {
    ir::StateSpaceInfo& space = p_.state_space;
    space.heads = small("mamba_n_heads", 1, kMaxHeads);
    space.head_dim = small("mamba_d_head", 1, kMaxDeltaHead);
    space.groups = small("mamba_n_groups", 1, kMaxHeads);
    space.state_dim = small("mamba_d_state", 1, kMaxDeltaHead);
    space.taps = small("mamba_d_conv", 2, 64);
    space.norm_first = in_.flag("mamba_norm_before_gate").value_or(false);
    p_.conv_bias = in_.flag("mamba_conv_bias").value_or(true);
    p_.state_space_norm = in_.flag("mamba_rms_norm").value_or(true);
    if (space.groups > 0 && space.heads % space.groups != 0) {
      return in_.fail(fmt::format("'mamba_n_groups' {} does not divide 'mamba_n_heads' {}",
                                  space.groups, space.heads));
    }
    if (in_.flag("mamba_proj_bias").value_or(false)) {
      in_.fail(
          "'mamba_proj_bias' is set: state-space layers whose projections have biases are not "
          "known");
    }
    read_step_limits();
    read_layers();
  }

  // Mamba-1. The rank of steps is a sixteenth of the width where the config does not say it.
  void read_selective_scans() {
    ir::SelectiveScanInfo& scan = p_.selective_scan;
    scan.channels =
        static_cast<int32_t>(in_.integer("mamba_expand", 1, 64) * std::max<int64_t>(p_.hidden, 1));
    scan.state_dim = small("mamba_d_state", 1, kMaxDeltaHead);
    scan.taps = small("mamba_d_conv", 2, 64);
    scan.step_rank = static_cast<int32_t>(
        in_.integer_or_null("mamba_dt_rank", 1, kMaxRank).value_or((p_.hidden + 15) / 16));
    p_.conv_bias = in_.flag("mamba_conv_bias").value_or(true);
    if (in_.flag("mamba_proj_bias").value_or(false)) {
      in_.fail(
          "'mamba_proj_bias' is set: state-space layers whose projections have biases are not "
          "known");
    }
    if (family_.has_config_key("mixer_rms_eps")) {
      p_.mixer_norm_eps = static_cast<float>(in_.number("mixer_rms_eps", 1e-20, 1));
    }
    read_layers();
  }

  // LFM2.
  void read_short_convs() {
    p_.short_conv_taps = small("conv_L_cache", 2, 64);
    if (in_.flag("conv_bias").value_or(false)) {
      in_.fail("'conv_bias' is set: short convolutions with biases are not known");
    }
    read_layer_kinds();
  }

 private:
  // Where the config does not say it, the gate of the output is a unit as others are.
  void read_output_gate(ir::DeltaNetInfo& net) {
    if (!family_.has_config_key("output_gate_type")) return;
    const bool own = in_.has("output_gate_type");
    const std::string type = own ? in_.text("output_gate_type") : in_.text("hidden_act");
    net.sigmoid_gate = type == "sigmoid";
    if (net.sigmoid_gate || type == "silu" || type.empty()) return;
    in_.fail(fmt::format("'{}' is '{}', expected sigmoid or silu: other gates are not known",
                         own ? "output_gate_type" : "hidden_act", printable(type)));
  }

  // Which layers have state spaces, and what they have beside them.
  void read_layers() {
    if (!family_.has_role(ir::Role::Attention)) {
      for (LayerShape& shape : p_.shapes) shape.attention = shape.feed_forward = false;
    } else if (!family_.beside_attention) {
      return read_layer_kinds();
    }
    for (LayerShape& shape : p_.shapes) shape.state_space = true;
  }

  // The smallest and the largest step; no file has them.
  void read_step_limits() {
    const auto limits = in_.config().floats("time_step_limit");
    if (!limits || limits->size() != 2) return;
    const double least = (*limits)[0], most = (*limits)[1];
    if (!(least >= 0 && std::isfinite(least) && most > 0 && most >= least)) {
      return in_.fail(fmt::format(
          "'time_step_limit' is {} and {}, expected 0 or above, and as much or more", least, most));
    }
    constexpr double kNone = 1e30;
    p_.state_space.step_min = static_cast<float>(least);
    p_.state_space.step_max = most < kNone ? static_cast<float>(most) : 0;
  }

  void read_layer_kinds() {
    const auto types = in_.config().strings("layer_types");
    if (!types) return in_.fail("'layer_types' is missing: it says which layers have attention");
    if (types->size() != p_.shapes.size()) {
      return in_.fail(fmt::format("'layer_types' has {} entries for {} layers", types->size(),
                                  p_.shapes.size()));
    }
    for (size_t i = 0; i < p_.shapes.size(); ++i) {
      LayerShape& shape = p_.shapes[i];
      const bool short_convs = family_.has_role(ir::Role::ShortConv);
      shape.state_space = !short_convs && (*types)[i] == "linear_attention";
      shape.short_conv = short_convs && (*types)[i] == "conv";
      shape.attention = (*types)[i] == "full_attention";
      const bool experts = family_.experts.layers == LayerPattern::ByKind && (*types)[i] == "moe";
      shape.feed_forward = !family_.one_part || (*types)[i] == "mlp" || experts;
      if (shape.state_space || shape.short_conv || shape.attention) continue;
      if (family_.one_part && shape.feed_forward) continue;
      return in_.fail(
          fmt::format("'layer_types' has '{}' for layer {}, expected full_attention{} {}",
                      printable((*types)[i]), i,
                      family_.experts.layers == LayerPattern::ByKind ? ", mlp, moe or"
                      : family_.one_part                             ? ", mlp or"
                                                                     : " or",
                      short_convs ? "conv" : "linear_attention"));
    }
  }
};

}  // namespace

void read_delta_nets(const ParamPart& part) {
  MixerParams(part).read_delta_nets();
}
void read_channel_delta_nets(const ParamPart& part) {
  MixerParams(part).read_channel_delta_nets();
}
void read_state_spaces(const ParamPart& part) {
  MixerParams(part).read_state_spaces();
}
void read_selective_scans(const ParamPart& part) {
  MixerParams(part).read_selective_scans();
}
void read_short_convs(const ParamPart& part) {
  MixerParams(part).read_short_convs();
}

}  // namespace ktx::arch

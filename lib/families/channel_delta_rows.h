// Rows of models whose layers have Kimi delta attention (gated delta nets whose channels decay each
// by itself) or latent attention. Data only, as in tree_rows.h; a family puts its forget gate and
// its output's gate between them, which may have latents.
#pragma once

#include "lib/families/key_rows.h"
#include "lib/families/tree_rows.h"

namespace ktx::families {

inline constexpr ClassRow kDeltaAttention{"{P}DeltaAttention"};
inline constexpr ClassRow kForgetGate{"{P}ForgetGate"};

constexpr ModuleRow channel_delta(const ClassRow* row_class) {
  return {Role::DeltaNet,
          "L.self_attn",
          row_class,
          When::DeltaNet,
          {{"conv_q", "B.ssm_conv1d_q.weight"},
           {"conv_k", "B.ssm_conv1d_k.weight"},
           {"conv_v", "B.ssm_conv1d_v.weight"},
           {"decay", "B.ssm_a"},
           {"dt_bias", "B.ssm_dt.bias"}}};
}
inline constexpr ModuleRow kDeltaAttentions[] = {channel_delta(&kDeltaAttention)};
inline constexpr ModuleRow kChannelDeltaInputs[] = {
    linear(Role::QProj, "L.self_attn.q_proj", "B.attn_q.", When::DeltaNet),
    linear(Role::KProj, "L.self_attn.k_proj", "B.attn_k.", When::DeltaNet),
    linear(Role::VProj, "L.self_attn.v_proj", "B.attn_v.", When::DeltaNet),
    {Role::DeltaConv, "L.self_attn.conv1d", &kConv1d, When::DeltaNet},
    {Role::DeltaForget, "L.self_attn.forget_gate", &kForgetGate, When::DeltaNet},
};
inline constexpr auto kChannelDelta = join(kDeltaAttentions, kChannelDeltaInputs);
inline constexpr ModuleRow kLatentForget[] = {
    linear(Role::DeltaForgetAProj, "L.self_attn.forget_gate.f_a_proj", "B.ssm_f_a.",
           When::DeltaNet),
    linear(Role::DeltaForgetBProj, "L.self_attn.forget_gate.f_b_proj", "B.ssm_f_b.",
           When::DeltaNet),
};
inline constexpr ModuleRow kLatentDeltaGate[] = {
    linear(Role::DeltaGateAProj, "L.self_attn.g_a_proj", "B.ssm_g_a.", When::DeltaNet),
    linear(Role::DeltaGateBProj, "L.self_attn.g_b_proj", "B.ssm_g_b.", When::DeltaNet),
};
inline constexpr ModuleRow kChannelDeltaStrength[] = {
    linear(Role::DeltaBProj, "L.self_attn.b_proj", "B.ssm_beta.", When::DeltaNet),
};
inline constexpr ModuleRow kChannelDeltaEnd[] = {
    weighted(Role::DeltaNorm, "L.self_attn.o_norm", &kGatedNorm, "B.ssm_norm.", When::DeltaNet),
    linear(Role::OProj, "L.self_attn.o_proj", "B.attn_output.", When::DeltaNet),
};
inline constexpr ModuleRow kFullLatent[] = {
    {Role::Mla, "L.self_attn", &kAttention, When::FullAttention},
};
// With a query latent, or without.
inline constexpr ModuleRow kFullLatentQueries[] = {
    linear(Role::QProj, "L.self_attn.q_proj", "B.attn_q.", When::FullQuery),
    linear(Role::QAProj, "L.self_attn.q_a_proj", "B.attn_q_a.", When::FullQueryLatent),
    norm(Role::QANorm, "L.self_attn.q_a_layernorm", "B.attn_q_a_norm.", When::FullQueryLatent),
    linear(Role::QBProj, "L.self_attn.q_b_proj", "B.attn_q_b.", When::FullQueryLatent),
};
inline constexpr ModuleRow kFullLatentKeys[] = {
    linear(Role::KvAProj, "L.self_attn.kv_a_proj_with_mqa", "B.attn_kv_a_mqa.",
           When::FullAttention),
    norm(Role::KvANorm, "L.self_attn.kv_a_layernorm", "B.attn_kv_a_norm.", When::FullAttention),
    {Role::KvBProj,
     "L.self_attn.kv_b_proj",
     &kLinear,
     When::FullAttention,
     {{"weight", "B.attn_kv_b.weight"},
      {"k_b", "B.attn_k_b.weight"},
      {"v_b", "B.attn_v_b.weight"}}},
    linear(Role::OProj, "L.self_attn.o_proj", "B.attn_output.", When::FullAttention),
};

inline constexpr ConfigKey kChannelDeltaKeys[] = {
    {"layer_types", "attention.head_count_kv", KeyRead::KeylessLayers, KeyKind::Texts,
     KeyWeight::Structural, "", ""},
    {"linear_num_heads", "", KeyRead::Nothing, KeyKind::Count, KeyWeight::Structural,
     "=num_attention_heads", "=num_attention_heads"},
    count("linear_head_dim", "kda.head_dim"),
    count("linear_conv_kernel_dim", "ssm.conv_kernel", "", "4"),
};
// In a config "linear_attn_config" has some of these.
inline constexpr ConfigAlias kLinearConfigAliases[] = {
    {"linear_attn_config.head_dim", "linear_head_dim"},
    {"linear_attn_config.num_heads", "linear_num_heads"},
    {"linear_attn_config.short_conv_kernel_size", "linear_conv_kernel_dim"},
};

}  // namespace ktx::families

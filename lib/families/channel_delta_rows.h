// Rows of models whose layers have Kimi delta attention (gated delta nets whose channels decay each
// by itself) or latent attention. Data only, as in tree_rows.h; a family puts its forget gate and
// its output's gate between them.
#pragma once

#include "lib/families/key_rows.h"
#include "lib/families/tree_rows.h"

namespace ktx::families {

inline constexpr ClassRow kDeltaAttention{"{P}DeltaAttention"};
inline constexpr ClassRow kForgetGate{"{P}ForgetGate"};

inline constexpr ModuleRow kChannelDelta[] = {
    {Role::DeltaNet,
     "L.self_attn",
     &kDeltaAttention,
     When::DeltaNet,
     {{"conv_q", "B.ssm_conv1d_q.weight"},
      {"conv_k", "B.ssm_conv1d_k.weight"},
      {"conv_v", "B.ssm_conv1d_v.weight"},
      {"decay", "B.ssm_a"},
      {"dt_bias", "B.ssm_dt.bias"}}},
    linear(Role::QProj, "L.self_attn.q_proj", "B.attn_q.", When::DeltaNet),
    linear(Role::KProj, "L.self_attn.k_proj", "B.attn_k.", When::DeltaNet),
    linear(Role::VProj, "L.self_attn.v_proj", "B.attn_v.", When::DeltaNet),
    {Role::DeltaConv, "L.self_attn.conv1d", &kConv1d, When::DeltaNet},
    {Role::DeltaForget, "L.self_attn.forget_gate", &kForgetGate, When::DeltaNet},
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

}  // namespace ktx::families
